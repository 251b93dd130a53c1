"""What the other processes of these tests do; it imports nothing but Noria."""

import os
import random
import signal
from pathlib import Path

from noria import Limiter

PATIENCE = 60

_limiter: Limiter
_barrier = None


def begin(url, barrier):
    """A process of a crew, which keeps its limiter from task to task."""
    global _limiter, _barrier  # noqa: PLW0603 - what a process of a pool keeps
    # The pool ends us by SIGTERM, whatever was made of it in the process we were forked off.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _limiter = Limiter(url, on_store_failure="closed")
    _barrier = barrier


def start():
    """The crew's limiter, once all of the crew are at their task."""
    _barrier.wait(PATIENCE)
    return _limiter


def drain(key, limit, calls):
    """How many of `calls` pass."""
    limiter = start()
    return sum(map(bool, (limiter.consume(key, limit) for _ in range(calls))))


def trade(key, limit, calls, seed):
    """Calls of mixed costs, some of which are given back: (units that passed, units given back)."""
    limiter, chance = start(), random.Random(seed)
    passed = returned = 0
    kept = []
    for _ in range(calls):
        cost = chance.randint(1, 9)
        decision = limiter.consume(key, limit, cost=cost)
        if decision:
            passed += cost
            kept.append((decision, cost))
        if kept and chance.random() < 0.3:
            decision, cost = kept.pop(chance.randrange(len(kept)))
            if limiter.refund(decision):
                returned += cost
    return passed, returned


def give_back(charges, seed):
    """How many of the charges it could give back, in an order of its own."""
    limiter = start()
    return sum(
        limiter.refund(charge) for charge in random.Random(seed).sample(charges, len(charges))
    )


def pay(one, other, limit, calls):
    """How many pairs of keys were charged together."""
    limiter = start()
    return sum(
        map(bool, (limiter.consume_many([(one, limit), (other, limit)]) for _ in range(calls)))
    )


def walk(url, limits, progress, stop):
    """Drain key after key until the file `stop` is there, telling in `progress` what has passed."""
    limiter = Limiter(url, on_store_failure="closed")
    file = os.open(progress, os.O_RDWR | os.O_CREAT, 0o600)
    number = 0
    while number == 0 or not Path(stop).exists():
        key, limit = f"key-{number}", limits[number % len(limits)]
        passed = 0
        while decision := limiter.consume(key, limit):
            passed += 1
            os.pwrite(file, passed.to_bytes(8, "little"), number * 8)
        if decision.degraded is not None:
            os._exit(3)
        number += 1
