"""A clock that stands still until it is told to move, in either direction."""

from __future__ import annotations


class Clock:
    """Whole microseconds since the Unix epoch; call it to read it."""

    __slots__ = ("now",)

    def __init__(self, now: int = 1_700_000_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def __repr__(self) -> str:
        return f"Clock({self.now})"

    def advance(self, microseconds: int) -> None:
        """Move by so many microseconds; below 0, back."""
        self.now += microseconds
