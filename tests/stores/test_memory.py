"""The memory store: bounded, and never a way to reset a limit."""

import subprocess
import sys
import threading
import tracemalloc

import pytest

from noria import ConfigError, Limit, Limiter
from noria.stores.memory import MemoryStore

ALGORITHMS = ["sliding-window", "sliding-window-log", "fixed-window", "token-bucket"]
HOUR = 3_600_000_000


class Clock:
    def __init__(self):
        self.now = 1_700_000_000_000_000

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def small(clock, **bounds):
    store = MemoryStore(**bounds)
    return store, Limiter(store, clock=clock)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_drained_key_stays_drained_whatever_flood_follows(clock, algorithm):
    store, limiter = small(clock, max_entries=100)
    limit = Limit("5/hour", algorithm=algorithm)
    for _ in range(5):
        assert limiter.consume("victim", limit)
    for number in range(2_000):
        limiter.consume(f"flood-{number}", limit)
    assert not limiter.consume("victim", limit)
    assert store.stats()["entries"] <= 100
    assert store.stats()["overflowed"] == 1_901


def test_newcomers_of_a_full_store_are_limited_together_and_are_told(clock):
    _, limiter = small(clock, max_entries=1)
    limiter.consume("first", "3/hour")
    decisions = [limiter.consume(f"new-{number}", "3/hour") for number in range(1_000)]
    assert all(decision.outcomes[0].reason == "overflow" for decision in decisions)
    # 64 records of three units each.
    assert sum(map(bool, decisions)) == 64 * 3
    assert limiter.consume("first", "3/hour").outcomes[0].reason == "ok"


def test_what_has_run_out_makes_room(clock):
    store, limiter = small(clock, max_entries=50)
    for number in range(50):
        limiter.consume(f"old-{number}", "1/second")
    clock.now += 2_000_000
    for number in range(50):
        assert limiter.consume(f"new-{number}", "1/second").outcomes[0].reason == "ok"
    assert store.stats() == {"entries": 50, "bytes": store.stats()["bytes"], "overflowed": 0}


def test_what_was_reset_makes_room(clock):
    store, limiter = small(clock, max_entries=2)
    limiter.consume("a", "1/hour")
    limiter.consume("b", "1/hour")
    assert limiter.reset("a") == 1
    assert limiter.consume("c", "1/hour").outcomes[0].reason == "ok"
    assert store.stats()["entries"] == 2


def test_a_key_that_shared_a_record_starts_from_its_count(clock):
    _, limiter = small(clock, max_entries=1)
    limiter.consume("first", "3/hour")
    for _ in range(3):
        assert limiter.consume("late", "3/hour")
    limiter.reset("first")
    # There is room again, but not for another three.
    decision = limiter.consume("late", "3/hour")
    assert not decision
    assert decision.outcomes[0].reason == "limited"


def test_keys_that_share_a_record_are_all_charged_in_one_batch(clock):
    store, limiter = small(clock, max_entries=1)
    limiter.consume("first", "200/hour")
    keys = [f"key-{number}" for number in range(200)]
    assert limiter.consume_many([(key, "200/hour") for key in keys])
    _, _, counts = zip(*(slot.state for slot in store.tables._overflow.values()), strict=True)
    assert len(counts) <= 64
    assert sum(counts) == 200


def test_resets_leave_nothing_behind(clock):
    store, limiter = small(clock, max_entries=1)
    for number in range(30_000):
        limiter.consume(f"key-{number % 7}", "5/hour")
        limiter.reset(f"key-{number % 7}")
    tables = store.tables._namespaces["noria"].values()
    names = sum(len(queue) for table in tables for queue in table.queues.values())
    assert names < 10_000


def test_bytes_return_to_nothing_when_all_has_run_out(clock):
    store, limiter = small(clock)
    limit = Limit("100/minute", algorithm="sliding-window-log")
    for number in range(300):
        limiter.consume(f"key-{number}", limit)
        limiter.consume("busy", limit)
    clock.now += HOUR
    for number in range(300):
        limiter.consume(f"fresh-{number}", limit)
    clock.now += HOUR
    for number in range(200):
        limiter.consume(f"last-{number}", "1/second")
    assert store.stats()["entries"] <= 200


def test_a_log_without_room_grows_stricter_not_larger(clock):
    store, limiter = small(clock, max_bytes=3_000)
    limit = Limit("500/minute", algorithm="sliding-window-log")
    admitted = 0
    for _ in range(1_000):
        clock.now += 1_000
        admitted += bool(limiter.consume("busy", limit))
    assert admitted == 500
    assert store.stats()["bytes"] <= 3_000
    clock.now += 59_000_000
    assert not limiter.consume("busy", limit)
    clock.now += 60_000_000
    assert limiter.consume("busy", limit, cost=500)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("length", [8, 300])
def test_bytes_are_counted_within_half_of_what_is_taken(clock, algorithm, length):
    store, limiter = small(clock)
    limit = Limit("1000/hour", algorithm=algorithm)
    keys = [f"{number:0{length}}" for number in range(5_000)]
    limiter.consume("warm", limit)
    tracemalloc.start()
    try:
        for key in keys:
            limiter.consume(key + "!", limit)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 1 / 1.5 < taken / store.stats()["bytes"] < 1.5


def test_threads_share_one_limit_exactly():
    limiter = Limiter("memory://")
    before = threading.active_count()
    passed = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:

        def work():
            passed.extend([bool(limiter.consume("k", "100/day")) for _ in range(30)])

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sum(passed) == 100
    assert threading.active_count() == before


def test_sweeping_beside_traffic_loses_no_count(clock):
    _, limiter = small(clock, max_entries=400)
    passed = []
    failures = []

    def hit():
        try:
            passed.extend([bool(limiter.consume("k", "300/day")) for _ in range(200)])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            failures.append(error)

    def churn(name):
        try:
            for number in range(1_000):
                clock.now += 10_000
                limiter.consume(f"{name}-{number}", "1/ms" if number % 2 else "1/500ms")
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=hit) for _ in range(4)]
    threads += [threading.Thread(target=churn, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sum(passed) == 300


FORK = """
import os, threading
from noria import Limiter
limiter = Limiter("memory://")
stop = False
def decide():
    while not stop:
        limiter.consume("k", "1000000/hour")
threads = [threading.Thread(target=decide, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(0 if limiter.consume("k", "1000000/hour") else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop = True
"""


def test_a_fork_amid_decisions_leaves_the_child_a_store_that_works():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], timeout=60, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_a_named_store_is_one_per_process():
    with Limiter("memory://shared-name") as one, Limiter("memory://shared-name") as other:
        assert one.consume("k", "1/day")
        assert not other.consume("k", "1/day")
    assert Limiter("memory://").consume("k", "1/day")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("memory://?max_entries=0", "max_entries"),
        ("memory://?max_entries=-1", "max_entries"),
        ("memory://?max_bytes=1TB", "max_bytes"),
        ("memory://?entries=5", "entries"),
        ("memory://?max_entries=1&max_entries=2", "once"),
        ("memory://?max_entries", "max_entries"),
        ("memory://#part", "memory://#part"),
        ("memory:", "memory:"),
        ("redis://localhost", "not in this version"),
        ("", "memory://"),
        (7, "7"),
    ],
)
def test_a_wrong_store_is_refused_by_name(url, named):
    with pytest.raises(ConfigError, match=named.replace("?", r"\?")):
        Limiter(url)


RESIDENT = """
import random, resource, sys
from noria import Limiter
keys, entries = int(sys.argv[1]), int(sys.argv[2])
limiter = Limiter(f"memory://?max_entries={entries}")
def resident():
    with open("/proc/self/statm") as figures:
        return int(figures.read().split()[1]) * resource.getpagesize()
for _ in range(5):
    assert limiter.consume("drained", "5/day")
chance = random.Random(7)
sizes = []
for number in range(keys):
    limiter.consume(f"{chance.getrandbits(64):x}", "5/day")
    if number in (keys // 3, keys - 1):
        sizes.append(resident())
assert not limiter.consume("drained", "5/day")
assert limiter.stats()["entries"] <= entries
print(sizes[1] / sizes[0])
"""


def grown(keys, entries):
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT, str(keys), str(entries)],
        check=True,
        capture_output=True,
        timeout=600,
    )
    return float(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_resident_memory_levels_off():
    assert grown(150_000, 10_000) < 1.1


@pytest.mark.nightly
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_resident_memory_levels_off_over_five_million_keys():
    assert grown(5_000_000, 200_000) < 1.05


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_making_room_for_one_limit_loses_no_charge_of_another(clock, algorithm):
    _, limiter = small(clock)
    old = Limit("10/minute", algorithm=algorithm)
    limiter.consume("k", old)
    clock.now += 600_000_000  # what was charged has run out, and is due to be dropped
    assert limiter.consume("k", old, "100/second", cost=10)
    assert not limiter.consume("k", old, cost=10)
    limiter.consume("tenant", old)
    clock.now += 600_000_000
    passed = [limiter.consume_many([("tenant", old, 10), (f"u{n}", old, 1)]) for n in range(4)]
    assert [bool(decision) for decision in passed] == [True, False, False, False]


def test_limits_made_up_at_run_time_leave_no_tables_behind(clock):
    _, limiter = small(clock)
    for number in range(10_000):
        limiter.consume("k", Limit(number + 1, per=1))
        clock.now += 3_000_000
    assert len(limiter._space._tables) <= 2_048


FORKS = """
import os, sys, threading
from noria import Limit, Limiter
sys.setswitchinterval(1e-5)
limit = Limit(10**9, per=3600)
limiters = [Limiter("memory://") for _ in range(20)]
stop = False
def decide():
    while not stop:
        for limiter in limiters:
            limiter.consume("k", limit)
def make():
    while not stop:
        Limiter("memory://")
def fork():
    for _ in range(25):
        child = os.fork()
        if child == 0:
            for limiter in limiters:
                limiter.consume("k", limit)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
threads = [threading.Thread(target=work, daemon=True) for work in (decide, decide, make)]
forkers = [threading.Thread(target=fork) for _ in range(3)]
for thread in [*threads, *forkers]: thread.start()
for thread in forkers: thread.join()
stop = True
"""


def test_forks_by_several_threads_while_stores_are_made_leave_no_lock_held():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS], timeout=60, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr
