"""The sentences of an answer, in English. Words that depend on a number come in its forms."""

from __future__ import annotations

QUOTA_TITLE = "Quota Exceeded"
CAPACITY_TITLE = "Temporary Reduced Capacity"

LIMITED = "The limit of {rate} is used up. Try again in {wait}."
NEVER = "The limit of {rate} can never admit this request."
UNAVAILABLE = "The service cannot check its limits at the moment. Try again in {wait}."

RATE = "{limit} per {period}"
BURST = "{limit} per {period}, {burst} at once,"


def seconds(count: int) -> str:
    """A wait in words."""
    return f"{count} second" if count == 1 else f"{count} seconds"
