"""Where a decision's time goes: its parts, timed one by one, innermost first.

Each line is a thing that a decision does, or a layer of it with all that is below. The parts are
measured alone and in a loop, so their sum is a little less than the whole.
"""

from __future__ import annotations

import gc
import tempfile
import time
import timeit
from typing import TYPE_CHECKING

import lmdb
import machine
from run import RAM_DISK

from noria import Limit, Limiter
from noria.model.decision import Decision

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "user:42"
LIMIT = Limit("1000000/second", algorithm="fixed-window")


def nanoseconds(part: Callable[[], object]) -> float:
    """The best of many short runs, less the cost of an empty call."""

    def best(call: Callable[[], object]) -> float:
        return min(timeit.repeat(call, number=2_000, repeat=60)) / 2_000 * 1e9

    return best(part) - best(lambda: None)


def parts(folder: str) -> dict[str, Callable[[], object]]:
    memory = Limiter("memory://")
    shared = Limiter(f"shared://{folder}/store")
    rule = LIMIT.rule
    for limiter in (memory, shared):
        limiter.consume(KEY, LIMIT)
    lock = memory._store.lock  # the store, and what follows, are the inside: that is the point
    now = memory._store.now()
    state = (now, 1)
    env = lmdb.open(f"{folder}/bare", writemap=True, sync=False, map_size=1 << 20)
    value = bytes(112)

    def locked() -> None:
        lock.acquire()
        lock.release()

    def transaction() -> None:
        txn = env.begin(write=True)
        txn.get(b"key")
        txn.put(b"key", value)
        txn.commit()

    def read() -> None:
        decision = memory.consume(KEY, LIMIT)
        _ = decision.remaining, decision.retry_after

    return {
        "the kernel's step": lambda: rule.step(rule.numbers, state, now, 1),
        "a lock, taken and let go": locked,
        "a clock read (monotonic)": time.monotonic_ns,
        "a Decision object": lambda: Decision(True, 1, None, None, state),  # noqa: FBT003
        "memory: the store's decide": lambda: memory._decide(KEY, rule, 1),
        "memory: consume": lambda: memory.consume(KEY, LIMIT),
        "memory: consume, remaining and retry_after read": read,
        "a bare LMDB transaction: begin, get, put, commit": transaction,
        "shared: the store's decide": lambda: shared._decide(KEY, rule, 1),
        "shared: consume": lambda: shared.consume(KEY, LIMIT),
    }


def main() -> None:
    print("\n".join(f"{name:9} {value}" for name, value in machine.describe().items()))
    folder = str(RAM_DISK) if RAM_DISK.is_dir() else None
    gc.disable()
    with tempfile.TemporaryDirectory(dir=folder) as root:
        for name, part in parts(root).items():
            print(f"{nanoseconds(part):7.0f} ns  {name}")


if __name__ == "__main__":
    main()
