"""What a run says on the way, and what it had to leave out and why."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Journal:
    """Progress on stderr, and the reasons for whatever could not be measured."""

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def say(self, what: str) -> None:
        print(f"[{self.seconds:5.0f} s] {what}", file=sys.stderr, flush=True)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """A missing or failing library costs its own figure, not the others'."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever it is, it is told, and the run goes on
            self.skipped[what] = f"{type(error).__name__}: {error}".strip()
