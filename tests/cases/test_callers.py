"""Faults that users of other limiters met with several callers at once."""

import sys
import threading
from itertools import count
from subprocess import PIPE, Popen

import pytest

from noria import AsyncLimiter, Limit, Limiter
from noria.testing import Clock
from noria.testing.crowd import Calls, at_once
from noria.testing.promises import ALGORITHMS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_limit_is_exact_under_many_callers(door, algorithm):
    """T6"""
    limiter, limit = door(), Limit("100/hour", algorithm=algorithm)
    threads = threading.active_count()
    passed = at_once(limiter, [Calls("k", limit, [1] * 30)] * 16)
    assert sum(map(sum, passed)) == 100
    assert threading.active_count() == threads


def test_what_runs_out_under_traffic_is_cleared_without_a_fault(store):
    """T7: time goes on with every call, so keys run out and are swept while others are charged."""
    ticks = count(Clock().now, 20_000)
    limiter = Limiter(store, clock=lambda: next(ticks))
    limit = Limit("3/second", algorithm="fixed-window")
    admitted = []
    faults = []

    def work(number):
        try:
            for call in range(250):
                key = f"{(number + call) % 12}"
                decision = limiter.consume(key, limit)
                if decision:
                    admitted.append((key, int(decision.decided_at)))
                limiter.consume(f"once {number} {call}", limit)
        except Exception as fault:  # noqa: BLE001
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert faults == []
    assert max(admitted.count(one) for one in set(admitted)) <= 3


CLIENT = """
import sys, time
real, skew = time.time_ns, int(sys.argv[2])
time.time_ns = lambda: real() + skew
time.time = lambda: time.time_ns() / 1e9
from noria import Limiter
with Limiter(sys.argv[1]) as limiter:
    for line in sys.stdin:
        print(bool(limiter.consume("k", "3/hour")), flush=True)
"""


def test_processes_whose_clocks_are_apart_share_one_limit(tmp_path):
    """T11: half a minute and an hour of difference, on the real clock: three calls of nine pass."""
    address = f"shared://{tmp_path}?size=16MB"
    clients = [
        Popen(
            [sys.executable, "-c", CLIENT, address, str(skew * 10**9)],
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )
        for skew in (0, 30, -3_600)
    ]
    answers = []
    for call in range(9):
        client = clients[call % 3]
        client.stdin.write("call\n")
        client.stdin.flush()
        answers.append(client.stdout.readline().strip())
    for client in clients:
        client.communicate(timeout=30)
        assert client.returncode == 0
    # The hour may end in between, which gives some of it back: the sliding window takes 20 minutes.
    assert answers == ["True"] * 3 + ["False"] * 6


def test_tasks_get_their_turns_while_others_are_limited(store):
    """T25: a task that decides without end does not hold up the loop."""
    import asyncio

    limiter = AsyncLimiter(store)
    turns = []

    async def busy():
        for _ in range(2_000):
            await limiter.consume("k", "5/hour")

    async def ticker():
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    async def main():
        watching = asyncio.create_task(ticker())
        await busy()
        watching.cancel()

    asyncio.run(main())
    assert len(turns) >= 20
