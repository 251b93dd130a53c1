"""Queueing: when would the last of a line of callers pass, if nobody else called?

A caller who joins a line with a timeout is told at once when it cannot be met. The answer comes
from the kernels themselves: the states are stepped forward, caller by caller, on a clock of their
own.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from noria.algorithms.contract import State
    from noria.model.limit import Rule


def soonest(
    now: int, states: dict[str, State], line: Sequence[tuple[list[Rule], int]]
) -> int | None:
    """Microseconds from `now` until the last of the line passes; None when it never will.

    `states` by rule id are stepped on the way; `line` holds the rules and the cost of each caller.
    A caller who never passes is refused when its turn comes, and holds up nobody.
    """
    moment = now
    passes = True
    for rules, cost in line:
        passed = _passes_at(moment, states, rules, cost)
        passes = passed is not None
        if passed is not None:
            moment = passed
            for rule in rules:
                stepped = rule.step(rule.numbers, states.get(rule.id), moment // rule.tick, cost)
                states[rule.id] = stepped[1]
    return moment - now if passes else None


def _passes_at(moment: int, states: dict[str, State], rules: list[Rule], cost: int) -> int | None:
    """The first moment at which all rules let the cost pass.

    The weight of what was charged only falls, so the longest wait is enough for all.
    """
    latest = moment
    for rule in rules:
        t = moment // rule.tick
        wait = rule.step(rule.numbers, states.get(rule.id), t, cost)[4]
        if wait is None:
            return None
        if wait:
            latest = max(latest, (t + wait) * rule.tick)
    return latest
