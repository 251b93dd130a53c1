"""Plan: from what the caller wrote to a batch, every argument checked before any I/O."""

from __future__ import annotations

from noria.algorithms.units import MAX_COST
from noria.model.batch import Batch, Entry
from noria.model.errors import UsageError
from noria.model.limit import as_limit
from noria.model.rate import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from noria.model.limit import Limit, Rule

MOST_ENTRIES = 1000
"""The most pairs of key and limit in one call."""


def plan(key: object, limits: Sequence[Limit | str], cost: object, *, charge: bool) -> Batch:
    """A batch for one key under some limits."""
    return plan_many([(key, limit, cost) for limit in checked_limits(limits)], charge=charge)


def plan_many(items: object, *, charge: bool) -> Batch:
    """A batch of (key, limit) or (key, limit, cost); the costs of a pair given twice add up."""
    entries: dict[tuple[str, str], Entry] = {}
    for key, limit, cost in _triples(items):
        entry = entries.get((key, limit.rule.id))
        if entry is None:
            entries[key, limit.rule.id] = Entry(key, limit.rule, cost, veto=not limit.shadow)
        elif entry.rule.limit != limit:
            raise UsageError(
                f"two different limits have the name {shown(limit.name)} in one call: "
                f"{entry.rule.limit} and {limit}"
            )
        else:
            entry.cost += cost
    if len(entries) > MOST_ENTRIES:
        raise UsageError(
            f"{len(entries)} pairs of key and limit in one call: expected up to {MOST_ENTRIES}"
        )
    return Batch(list(entries.values()), charge=charge)


def _triples(items: Any) -> Iterable[tuple[str, Limit, int]]:  # noqa: ANN401 - what callers give
    if type(items) not in {list, tuple} or not items:
        raise UsageError(
            f"{shown(items)}: expected a list of (key, limit) or (key, limit, cost), not empty"
        )
    for item in items:
        pair: list[Any] = [*(item if type(item) in {tuple, list} else (item,))]
        if len(pair) not in {2, 3}:
            raise UsageError(f"{shown(pair)}: expected (key, limit) or (key, limit, cost)")
        key, limit, *cost = pair
        yield checked_key(key), as_limit(limit), checked_cost(cost[0] if cost else 1)


def checked_limits(limits: Sequence[Limit | str]) -> Sequence[Limit | str]:
    """`limits` themselves; a `UsageError` where there are none."""
    if not limits:
        raise UsageError('no limit given: expected at least one, such as Limit("100/minute")')
    return limits


def checked_key(key: object) -> str:
    """`key` itself; a `UsageError` unless it is text that is not empty and has a UTF-8 form."""
    if type(key) is not str:
        if isinstance(key, str):
            return checked_key(str.__str__(key))
        raise UsageError(f"key {shown(key)}: expected text (str), not {type(key).__name__}")
    if not key:
        raise UsageError("key '': expected text that is not empty")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError:
            raise UsageError(f"key {shown(key)}: a lone surrogate has no UTF-8 form") from None
    return key


def checked_cost(cost: object) -> int:
    """`cost` itself; a `UsageError` unless it is an int of 0 to 2**31."""
    if type(cost) is not int or not 0 <= cost <= MAX_COST:
        raise UsageError(f"cost {shown(cost)}: expected a whole number (int) from 0 to 2**31")
    return cost


def rules_of(limits: Sequence[Limit | str]) -> list[Rule]:
    """The compiled rules of limits, each once."""
    return list({limit.rule.id: limit.rule for limit in map(as_limit, limits)}.values())
