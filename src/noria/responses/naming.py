"""Which limit an answer speaks of, and what it is called there."""

from __future__ import annotations

from noria.responses.whole import microseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.model.decision import Decision, Outcome

_UNITS = (
    ("w", 604_800_000_000),
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
)


def policy_name(outcome: Outcome) -> str:
    """The limit's name; without one N and the period, such as `5-1m`, `100-1h` or `1-500ms`.

    So an unnamed limit is called the same in every process and after every restart. Two limits of
    one rate that must be told apart need names.
    """
    if outcome.name is not None:
        return outcome.name
    period = microseconds(outcome.period)
    unit, size = next((pair for pair in _UNITS if period % pair[1] == 0), ("us", 1))
    return f"{outcome.limit}-{period // size}{unit}"


def speaker(decision: Decision) -> Outcome | None:
    """The outcome whose figures are the decision's; None where the store did not answer.

    It is found by those figures, so that the rule which chooses it stays in one place.
    """
    figures = (decision.limit, decision.remaining, decision.reset_after)
    alike = [
        outcome
        for outcome in decision.outcomes
        if not outcome.shadow and (outcome.limit, outcome.remaining, outcome.reset_after) == figures
    ]
    answer = (decision.allowed, decision.retry_after)
    exact = (outcome for outcome in alike if (outcome.allowed, outcome.retry_after) == answer)
    return next(exact, alike[0] if alike else None)
