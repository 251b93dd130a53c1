"""Several processes, one store: exact to the unit, whoever dies on the way."""

import multiprocessing
import random
import struct
import time
from contextlib import contextmanager

import pytest
import workers

from noria import Limit, Limiter

# Python 3.12 and newer warn of what some of these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

ALGORITHMS = ["sliding-window", "sliding-window-log", "fixed-window", "token-bucket"]
PROCESSES = 4


def limit_of(units, algorithm):
    """One whose window no test outlives, so that what was charged stays charged."""
    return Limit(units, per=3650 * 86_400, algorithm=algorithm)


@contextmanager
def crew(url, method="spawn"):
    """Processes that do the same task at the same time; each keeps one limiter."""
    context = multiprocessing.get_context(method)
    barrier = context.Barrier(PROCESSES)
    with context.Pool(PROCESSES, workers.begin, (url, barrier)) as pool:

        def work(task, *args, seeded=False):
            calls = [(*args, seed) if seeded else args for seed in range(PROCESSES)]
            return pool.starmap_async(task, calls, chunksize=1).get(workers.PATIENCE)

        yield work


@pytest.fixture
def url(tmp_path):
    return f"shared://{tmp_path}/store"


@pytest.fixture
def limiter(url):
    with Limiter(url, on_store_failure="closed") as limiter:
        yield limiter


def eventually(check, seconds=30):
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_four_processes_share_one_limit_exactly(url, limiter, algorithm):
    limit = limit_of(1000, algorithm)
    with crew(url) as work:
        for number in range(10):
            passed = work(workers.drain, f"key-{number}", limit, 5000)
            assert sum(passed) == 1000, passed
            assert limiter.peek(f"key-{number}", limit).remaining == 0


def test_forked_processes_share_one_limit_exactly(url, limiter):
    limit = limit_of(1000, "sliding-window")
    with crew(url, "fork") as work:
        for number in range(10):
            passed = work(workers.drain, f"key-{number}", limit, 5000)
            assert sum(passed) == 1000, passed
            assert limiter.peek(f"key-{number}", limit).remaining == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_costs_and_refunds_of_four_processes_add_up_to_the_unit(url, limiter, algorithm):
    limit = limit_of(1000, algorithm)
    with crew(url) as work:
        for number in range(3):
            key = f"key-{number}"
            done = work(workers.trade, key, limit, 600, seeded=True)
            charged = sum(passed - returned for passed, returned in done)
            assert sum(returned for _, returned in done) > 0
            assert charged == 1000 - limiter.peek(key, limit).remaining
            left = 1000 - charged
            assert [
                bool(limiter.consume(key, limit, cost=cost)) for cost in (left + 1, left, 1)
            ] == [
                False,
                True,
                False,
            ]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_charge_is_given_back_once_in_all_processes(url, limiter, algorithm):
    limit = limit_of(100, algorithm)
    charges = [limiter.consume("key", limit).charge for _ in range(50)]
    with crew(url) as work:
        done = work(workers.give_back, charges, seeded=True)
    # In four orders at once; the store tells that many refunds of one state apart.
    assert sum(done) == 50, done
    assert limiter.peek("key", limit).remaining == 100


def test_keys_charged_together_by_four_processes_are_charged_alike(url, limiter):
    limit = limit_of(1000, "sliding-window")
    limiter.consume("scarce", limit, cost=300)
    with crew(url) as work:
        done = work(workers.pay, "ample", "scarce", limit, 500)
    assert sum(done) == 700
    assert limiter.peek("scarce", limit).remaining == 0
    assert limiter.peek("ample", limit).remaining == 300


def test_a_process_killed_ten_times_loses_no_charge_and_stops_nobody(url, limiter, tmp_path):
    limits = [limit_of(1000, algorithm) for algorithm in ALGORITHMS]
    context = multiprocessing.get_context("spawn")
    chance, stop = random.Random(4), tmp_path / "stop"
    progress = []

    def launch():
        progress.append(tmp_path / f"progress-{len(progress)}")
        process = context.Process(target=workers.walk, args=(url, limits, progress[-1], stop))
        process.start()
        return process

    def told(path):
        raw = path.read_bytes() if path.exists() else b""
        return struct.unpack(f"<{len(raw) // 8}q", raw[: len(raw) // 8 * 8])

    survivors = [launch() for _ in range(PROCESSES - 1)]
    own = progress[:]
    try:
        for _ in range(10):
            victim = launch()
            more = chance.randrange(500)
            eventually(lambda more=more: sum(told(progress[-1])) > more)
            victim.kill()
            victim.join()
            before = sum(sum(told(path)) for path in own)
            eventually(lambda before=before: sum(sum(told(path)) for path in own) > before)
        stop.touch()
        for process in survivors:
            process.join(60)
            assert process.exitcode == 0
    finally:
        for process in survivors:
            process.kill()
            process.join()

    passed = {}
    for path in progress:
        for number, count in enumerate(told(path)):
            passed[number] = passed.get(number, 0) + count
    assert max(passed.values()) <= 1000
    # Whoever was killed between a charge and saying so kept at most that one to itself.
    assert sum(1000 - count for count in passed.values()) <= 10
    for number in passed:
        decision = limiter.peek(f"key-{number}", limits[number % 4])
        assert (decision.remaining, decision.allowed) == (0, False)
