"""The `X-RateLimit` dialect: three fields for the one limit that matters most.

No standard defines them; this is the form most clients expect, GitHub's: `-Reset` is a moment in
Unix seconds, and it is the moment worth waiting for: the end of a window, a bucket's being full, a
log's next departure. Retry-After is the only one of the four that a standard does define.
"""

from __future__ import annotations

from noria.responses.naming import speaker
from noria.responses.whole import retry_seconds, seconds_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from noria.model.decision import Decision, Outcome

    Fields: TypeAlias = list[tuple[str, str]]

NAMES = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
"""The fields that each answer has once."""


def fields(decision: Decision) -> Fields:
    """The header fields of an answer, as (name, value).

    `Retry-After` is there on a denial only, and not for "never". A decision made without the store
    has no figures worth showing.
    """
    outcome = speaker(decision)
    found: Fields = []
    wait = None if decision.allowed else retry_seconds(decision.retry_after)
    if outcome is not None and decision.degraded is None:
        figures = (
            outcome.limit if outcome.burst is None else outcome.burst,
            outcome.remaining,
            _reset(outcome, decision.decided_at, wait),
        )
        found = [(name, str(figure)) for name, figure in zip(NAMES, figures, strict=True)]
    if wait is not None:
        found.append(("Retry-After", str(wait)))
    return found


def outranks(ours: Fields, theirs: Mapping[str, str]) -> bool:
    """Whether `ours` replace what an answer carries already: there is room for the tighter only.

    `theirs` are its header fields by lower-case name. Fields that are not whole numbers are
    replaced; those of a refusal stay, for they belong to its Retry-After.
    """
    inner = [theirs.get(name.lower(), "") for name in NAMES]
    if not all(value.isascii() and value.isdigit() for value in inner):
        return True
    if "retry-after" in theirs:
        return False
    figures = dict(ours)
    mine = [int(figures[name]) for name in NAMES]
    return (mine[1], -mine[2]) < (int(inner[1]), -int(inner[2]))


def _reset(outcome: Outcome, now: float, wait: int | None) -> int:
    if outcome.window_ends_after is not None:
        after = outcome.window_ends_after
    elif outcome.burst is not None:
        after = outcome.reset_after
    else:
        after = outcome.grows_after
    reset = seconds_up(now, after)
    return reset if wait is None else max(reset, seconds_up(now, wait))
