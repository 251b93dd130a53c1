"""asyncio: a hundred tasks on one loop, each making a decision and then letting the others run.

A row that only yields shows what the loop itself takes, which is in every other row as well.
Beside the tasks a ticker asks to be woken every millisecond: the share of its ticks that came no
more than 5 ms late tells whether decisions hold the loop up. For information, not a target.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import measure
import peers
from peers import AsyncDecide, Rate, Spec

if TYPE_CHECKING:
    from journal import Journal

TASKS = 100
TICK = 0.001
LATE = 0.005
AMPLE = Rate(10_000_000, "minute")
YIELD = Spec("asyncio", "none", "-", "yield alone")


def contenders() -> list[Spec]:
    everyone = peers.NORIA + peers.LIMITS + peers.THROTTLED
    return [YIELD, *(s for s in everyone if s.algorithm in {"fixed-window", "sliding-window"})]


async def _crowd(decide: AsyncDecide | None, seconds: float) -> tuple[float, float]:
    """Decisions a second, and the share of ticks on time."""
    start = time.perf_counter()
    end = start + seconds
    lateness: list[float] = []

    async def one(key: str) -> int:
        done = 0
        while time.perf_counter() < end:
            if decide:
                await decide(key)
            done += 1
            await asyncio.sleep(0)
        return done

    async def ticker() -> None:
        while (asked := time.perf_counter()) < end:
            await asyncio.sleep(TICK)
            lateness.append(time.perf_counter() - asked - TICK)

    watch = asyncio.create_task(ticker())
    done = await asyncio.gather(*(one(f"user:{i}") for i in range(TASKS)))
    spent = time.perf_counter() - start
    await watch
    return sum(done) / spent, sum(late <= LATE for late in lateness) / len(lateness)


async def _round(spec: Spec, seconds: float, directory: str) -> tuple[float, float]:
    if spec is YIELD:
        return await _crowd(None, seconds)
    session = await peers.open_async(spec, AMPLE, directory)
    for i in range(TASKS):
        await session.decide(f"user:{i}")
    answer = await _crowd(session.decide, seconds)
    await session.close()
    return answer


def run(rounds: int, seconds: float, journal: Journal) -> list[dict[str, Any]]:
    """Interleaved rounds, each on a loop and a store of its own."""
    answers: dict[Spec, list[tuple[float, float]]] = {spec: [] for spec in contenders()}
    for turn in range(rounds):
        journal.say(f"asyncio, round {turn + 1} of {rounds}")
        for spec, got in answers.items():
            measure.settle_down()
            with (
                journal.attempt(f"asyncio: {spec.label}, {spec.algorithm}"),
                tempfile.TemporaryDirectory() as root,
            ):
                got.append(asyncio.run(_round(spec, seconds, f"{root}/store")))
    return [
        {
            "contender": spec.label,
            "library": spec.library,
            "store": spec.store,
            "algorithm": spec.algorithm,
            "per_second": median(rate for rate, _ in got),
            "ticks_on_time": median(share for _, share in got),
        }
        for spec, got in answers.items()
        if got
    ]
