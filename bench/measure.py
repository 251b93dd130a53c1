"""How time is taken: interleaved rounds, so that a noisy moment falls on everyone.

Each contender's count is calibrated once so that a round lasts about as long for all. Then the
rounds go A, B, C, A, B, C, ... and a ratio is the median of the ratios *within* a round: two
contenders are only ever compared at the same time of day on the same machine. The collector is
emptied and off during a round for all alike, and a round starts only when the background thread
of the library before it (limits expires its keys in a timer) has gone quiet.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def key_names(count: int, seed: int = 7) -> list[str]:
    """The same keys in the same shuffled order for every contender."""
    names = [f"user:{i}" for i in range(count)]
    random.Random(seed).shuffle(names)
    return names


def counted(keys: int) -> str:
    """As in 1 key, 100,000 keys."""
    return f"{keys:,} key" + "s" * (keys != 1)


@dataclass
class Lane:
    """One contender in a race: what it calls, and its decisions per second round by round."""

    name: str
    decide: Callable[[str], Any]
    allowed: Callable[[Any], bool]
    rates: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return median(self.rates)


def settle_down(patience: float = 2.0) -> None:
    """Wait for timers that a library left running."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if not any(isinstance(t, threading.Timer) for t in threading.enumerate()):
            return
        time.sleep(0.002)


def seconds_for(decide: Callable[[str], Any], keys: Sequence[str]) -> float:
    """Wall time of one decision on each of `keys`."""
    settle_down()
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for key in keys:
            decide(key)
        return time.perf_counter() - start
    finally:
        gc.enable()


def calibrate(decide: Callable[[str], Any], keys: Sequence[str], target: float) -> int:
    """How many decisions last about `target` seconds; warms the path up on the way."""
    count = 64
    while (spent := seconds_for(decide, list(islice(cycle(keys), count)))) < target / 4:
        count *= 2
    return max(1, int(count * target / spent))


def race(
    lanes: Sequence[Lane], keys: Sequence[str], rounds: int, target: float, *, expect: bool
) -> None:
    """Run all lanes over `keys`, filling in their rates; every lane must answer `expect`."""
    gc.collect()
    gc.freeze()  # what the stores hold by now is not walked again before each round
    try:
        walks = [(lane, cycle(keys), calibrate(lane.decide, keys, target)) for lane in lanes]
        for _ in range(rounds):
            for lane, walk, count in walks:
                batch = list(islice(walk, count))
                lane.rates.append(count / seconds_for(lane.decide, batch))
                check(lane, batch[-1], expect=expect)
    finally:
        gc.unfreeze()


def check(lane: Lane, key: str, *, expect: bool) -> None:
    """The case must be what its title says, or its figure would mean nothing."""
    if lane.allowed(lane.decide(key)) is not expect:
        raise AssertionError(f"{lane.name} answered {not expect} where {expect} was measured")


def fill_race(
    lanes: Sequence[Lane], key_count: int, per_key: int, period: float, rounds: int
) -> None:
    """Fill a log of `per_key` entries on each key, from empty to full, once a round.

    The limit is `per_key` a `period`, and a lane waits until its last fill has left the window.
    So every decision of a round is allowed, logs are half full on average, one old entry expires
    per decision, and no lane does another mix of work because it is faster. Lanes may share a
    store, so each has keys of its own.
    """
    batches = [
        [key for i in range(key_count) for key in [f"user:{number}:{i}"] * per_key]
        for number in range(len(lanes))
    ]
    ended = [0.0] * len(lanes)
    for turn in range(rounds + 1):
        for number, (lane, batch) in enumerate(zip(lanes, batches, strict=True)):
            time.sleep(max(0.0, ended[number] + 1.05 * period - time.monotonic()))
            if turn:
                lane.rates.append(len(batch) / seconds_for(lane.decide, batch))
            else:  # the warm-up, which also proves that all of it is allowed
                for key in batch:
                    check(lane, key, expect=True)
            ended[number] = time.monotonic()


def growth_race(lanes: Sequence[Lane], per_key: int, rounds: int) -> None:
    """Fill a log that was empty to `per_key` entries, another key each round; none expires."""
    for turn in range(rounds):
        for number, lane in enumerate(lanes):
            batch = [f"log:{number}:{turn}"] * per_key
            lane.rates.append(per_key / seconds_for(lane.decide, batch))
            check(lane, batch[0], expect=False)


def ratio(ours: Lane, theirs: Lane) -> float:
    """How many times theirs ours is: the median over rounds, each compared within itself."""
    return median(a / b for a, b in zip(ours.rates, theirs.rates, strict=True))
