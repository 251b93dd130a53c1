"""Callers at once: threads, tasks or processes, and whether what they were told can be true."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from noria.testing.promises import must

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noria.testing.driver import Driver


class Calls(NamedTuple):
    """The calls of one caller, one after the other."""

    key: str
    limit: Any
    costs: Sequence[int]


class Call(NamedTuple):
    """A call that was made: the numbers of its beginning and its end, and what it was told."""

    begin: int
    end: int
    cost: int
    allowed: bool
    remaining: int


class _Notes:
    """Numbers what begins and what ends, and keeps the calls made."""

    def __init__(self, history: list[Call] | None) -> None:
        self._history = history
        self._numbers = count()

    def begin(self) -> int:
        return next(self._numbers)

    def end(self, begin: int, cost: int, decision: Any) -> bool:
        if self._history is not None:
            end = next(self._numbers)
            self._history.append(Call(begin, end, cost, decision.allowed, decision.remaining))
        return bool(decision)


def at_once(
    driver: Driver, asked: list[Calls], history: list[Call] | None = None
) -> list[list[bool]]:
    """Make the calls of several callers together; for each, which calls passed.

    Callers are threads that are switched as often as can be, or tasks where the limiter is awaited.
    """
    notes = _Notes(history)
    if not driver.is_awaited:
        return _in_threads(driver, asked, notes)
    answers: list[list[bool]] = driver.done(_in_tasks(driver, asked, notes))
    return answers


async def _in_tasks(driver: Driver, asked: list[Calls], notes: _Notes) -> list[list[bool]]:
    async def work(one: Calls) -> list[bool]:
        passed: list[bool] = []
        for cost in one.costs:
            begin = notes.begin()
            decision = await driver.limiter.consume(one.key, one.limit, cost=cost)
            passed.append(notes.end(begin, cost, decision))
            await asyncio.sleep(0)
        return passed

    return list(await asyncio.gather(*map(work, asked)))


def _in_threads(driver: Driver, asked: list[Calls], notes: _Notes) -> list[list[bool]]:
    answers: list[list[bool]] = [[] for _ in asked]
    faults: list[BaseException] = []
    start = Barrier(len(asked))

    def work(one: Calls, passed: list[bool]) -> None:
        try:
            start.wait()
            for cost in one.costs:
                begin = notes.begin()
                decision = driver.limiter.consume(one.key, one.limit, cost=cost)
                passed.append(notes.end(begin, cost, decision))
        except BaseException as fault:  # noqa: BLE001 - raised in the caller's thread
            faults.append(fault)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=work, args=pair) for pair in zip(asked, answers, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if faults:
        raise faults[0]
    return answers


def has_an_order(history: list[Call], capacity: int) -> bool:
    """Whether one caller at a time, on a clock that stands still, could have had these answers.

    Every order is tried in which no call comes before one that ended before it began. What is known
    after some calls is only how much they took, so an attempt that failed is not made twice.
    """
    tried: set[frozenset[int]] = set()

    def explains(left: frozenset[int], used: int) -> bool:
        if not left:
            return True
        if left in tried:
            return False
        tried.add(left)
        first_end = min(history[at].end for at in left)
        for at in left:
            call = history[at]
            fits = used + call.cost <= capacity
            after = used + call.cost * fits
            told = call.allowed, call.remaining
            possible = call.begin < first_end and told == (fits, capacity - after)
            if possible and explains(left - {at}, after):
                return True
        return False

    return explains(frozenset(range(len(history))), 0)


def in_processes(work: Callable[[], int], processes: int) -> list[int]:
    """What each of several forked processes answers."""
    from multiprocessing import get_context

    context = get_context("fork")
    answers = context.SimpleQueue()
    children = [context.Process(target=lambda: answers.put(work())) for _ in range(processes)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    for child in children:
        must(
            child.exitcode == 0,
            "C13: a forked process can use the limiter",
            exitcode=child.exitcode,
        )
    return [answers.get() for _ in children]
