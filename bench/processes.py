"""Four processes at once: decisions per second in all.

Spawned (not forked) processes open the store, warm up, meet at a barrier and decide for a fixed
time. Only Noria's `shared://` gives the four one count. `limits` and `throttled-py` have nothing
to compare without a server, so their rows are four separate memories, each process admitting the
whole limit: shown for scale, and labelled so.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import measure
import peers
from measure import counted
from peers import Rate, Spec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.synchronize import Barrier

    from journal import Journal

WORKERS = 4
BATCH = 200
PATIENCE = 60.0  # seconds until a hung worker is given up

AMPLE = Rate(10_000_000, "minute")
MANY = Rate(1_000, "day")  # no key recovers, and is forgotten, during the run
LOG_HOT = Rate(100, "second")  # a hot log at this speed is full, so nearly all of it is denials

SHARED = [spec for spec in peers.NORIA if spec.store == "shared"]
FOR_SCALE = [
    spec
    for spec in peers.NORIA + peers.LIMITS + peers.THROTTLED
    if spec.store == "memory" and spec.algorithm in {"fixed-window", "sliding-window"}
]


class Job(NamedTuple):
    """What each worker is given."""

    spec: Spec
    rate: Rate
    directory: str
    keys: int
    seconds: float


def worker(number: int, job: Job, barrier: Barrier, results: Any) -> None:
    """One process: put decisions per second into `results`, or what went wrong."""
    try:
        results.put(_decide(number, job, barrier))
    except Exception as error:  # noqa: BLE001  the parent tells it
        barrier.abort()
        results.put(f"{type(error).__name__}: {error}")


def _decide(number: int, job: Job, barrier: Barrier) -> float:
    session = peers.open_session(job.spec, job.rate, job.directory)
    decide = session.bare or session.figures
    keys = measure.key_names(job.keys, seed=number)
    for key in keys if job.spec.store == "memory" else keys[: 10 * BATCH]:
        decide(key)
    walk = keys * max(1, BATCH // len(keys))
    batches = cycle([walk[i : i + BATCH] for i in range(0, len(walk), BATCH)])
    barrier.wait(PATIENCE)
    done = 0
    start = now = time.perf_counter()
    while now - start < job.seconds:
        batch = next(batches)
        for key in batch:
            decide(key)
        done += len(batch)
        now = time.perf_counter()
    session.close()
    return done / (now - start)


def measure_one(spec: Spec, rate: Rate, keys: int, seconds: float) -> float:
    """Decisions a second of all workers together."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as root:
        job = Job(spec, rate, f"{root}/store", keys, seconds)
        if spec.store == "shared":  # every key known before the start, as for the memories
            session = peers.open_session(spec, rate, job.directory)
            for key in measure.key_names(keys):
                session.figures(key)
            session.close()
        barrier, results = context.Barrier(WORKERS), context.SimpleQueue()
        workers = [
            context.Process(target=worker, args=(number, job, barrier, results))
            for number in range(WORKERS)
        ]
        for process in workers:
            process.start()
        for process in workers:
            process.join(PATIENCE + seconds)
            if process.is_alive():
                process.kill()
                process.join()
        answers = ["no answer" if results.empty() else results.get() for _ in workers]
    rates = [answer for answer in answers if isinstance(answer, float)]
    if len(rates) < WORKERS:  # a broken barrier says less than what broke it
        raise RuntimeError(max((a for a in answers if isinstance(a, str)), key=len))
    return sum(rates)


def run(
    specs: Sequence[Spec], key_count: int, seconds: float, journal: Journal
) -> list[dict[str, Any]]:
    """One row per contender and number of keys."""
    rows: list[dict[str, Any]] = []
    for keys in (1, key_count):
        for spec in specs:
            hot_log = keys == 1 and spec.algorithm == "sliding-window-log"
            rate = LOG_HOT if hot_log else AMPLE if keys == 1 else MANY
            title = f"four processes, {counted(keys)}: {spec.label}, {spec.algorithm}"
            journal.say(title)
            with journal.attempt(title):
                rows.append(
                    {
                        "keys": keys,
                        "contender": spec.label,
                        "library": spec.library,
                        "store": spec.store,
                        "algorithm": spec.algorithm,
                        "one_count": spec.store == "shared",
                        "mostly_denied": hot_log,
                        "per_second": measure_one(spec, rate, keys, seconds),
                    }
                )
    return rows
