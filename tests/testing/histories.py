"""What happens in the vectors; what must come of it, the model says.

`python tests/testing/histories.py` writes the files anew; a test sees to it that nobody has to ask.
"""

import json
import random
from importlib.resources import files
from itertools import chain

from noria.testing import Clock, Model
from noria.testing.driver import SECOND
from noria.testing.model import Rates
from noria.testing.promises import ALGORITHMS
from noria.testing.vectors import KEY, figures_of, limit_of

MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
TEN_YEARS = 3_650 * DAY
BEGIN = 19_675 * DAY
"""Midnight of a day in 2023: an edge of every window that divides a day."""


def history(title, limit, period, *rows, burst=None, begin=BEGIN):
    numbers = {"limit": limit, "period_us": period, "burst": burst}
    return {"title": title, "numbers": numbers, "begin": begin, "rows": rows}


def consume(at, *costs):
    return [("consume", at, cost) for cost in costs or (1,)]


def peek(at, *costs):
    return [("peek", at, cost) for cost in costs or (1,)]


def refund(at, *numbers):
    """Of charges by number: the first `consume` of a history is 0."""
    return [("refund", at, number) for number in numbers]


def reset(at):
    return [("reset", at, None)]


def becomes(limit, period, burst=None):
    return [("limit", None, {"limit": limit, "period_us": period, "burst": burst})]


def edges(limit, period, tick=1):
    """Drained in the middle of a window; then each edge, with a tick before and after."""
    middle = period // tick // 2 * tick
    look = max(limit, 1)
    yield consume(middle, look, 1)
    for edge in (period, middle + period, 2 * period, middle + 2 * period, 3 * period):
        yield from (
            [*peek(edge + step, 1), *consume(edge + step, look)] for step in (-tick, 0, tick)
        )


def edges_seldom_used(limit, period, tick=1):
    """Drained at the last and the first tick of a window."""
    yield consume(period - tick, limit)
    yield consume(period, 1)
    yield consume(period + tick, 1, limit)
    yield consume(2 * period - tick, 1)
    yield consume(2 * period, limit, 1)
    yield consume(3 * period - tick, 1)
    yield consume(3 * period, 1)


def scripted(algorithm):
    """The histories of one algorithm, most of them the same for all."""
    burst = algorithm == "token-bucket"

    def of(title, limit, period, *rows, own_burst=None, **more):
        given = (own_burst or limit or 1) if burst else None
        return history(title, limit, period, *chain.from_iterable(rows), burst=given, **more)

    largest = 100_000 if algorithm == "sliding-window-log" else 10**9
    yield of("edges of its windows", 5, 20, *edges(5, 20))
    yield of("edges of its windows, N = 1", 1, 7, *edges(1, 7))
    yield of("charged at the ends of its windows", 3, 10, *edges_seldom_used(3, 10))
    yield of("a window of one tick", 2, 1, *edges(2, 1))
    yield of(
        "mixed costs", 5, 60, consume(0, 4), consume(1, 2, 1), consume(61, 4, 1), consume(62, 3)
    )
    yield of(
        "a denial charges nothing", 10, MINUTE, consume(0, 8, 5, 1, 1, 1), consume(MINUTE - 1, 3, 2)
    )
    yield of(
        "retried all the time",
        1,
        3_600 * SECOND,
        consume(0),
        *(consume(at * 600 * SECOND) for at in range(1, 15)),
    )
    yield of(
        "a cost of nothing", 2, 20, consume(3, 0), consume(3, 2, 0), peek(4, 0), consume(25, 0)
    )
    yield of(
        "a cost above capacity",
        10,
        MINUTE,
        consume(0, 11, 2**31, 1, 10),
        peek(1, 11),
        consume(MINUTE, 11),
    )
    yield of(
        "N = 0",
        0,
        MINUTE,
        consume(0, 1, 0, 2**31),
        peek(5, 1),
        consume(MINUTE, 1),
        refund(MINUTE, 0),
    )
    yield of("looked at, never used", 3, 20, peek(0, 1, 3, 4), peek(19, 1), reset(19))
    yield of(
        "retry one and two windows ahead",
        10,
        100,
        consume(95, 10),
        consume(96, 1, 5, 10),
        consume(110, 3, 10),
        consume(150, 5, 6),
        peek(199, 10),
        consume(199, 4),
        consume(200, 10),
        consume(201, 9),
    )
    yield of(
        "waits exactly as told",
        3,
        20,
        consume(2, 1),
        consume(9, 2),
        consume(9, 1, 3),
        consume(21, 1),
        consume(22, 1),
        consume(23, 1),
        consume(28, 2),
        consume(29, 2),
        consume(42, 1, 3),
    )
    yield of(
        "refunds",
        5,
        20,
        consume(3, 2),
        consume(4, 2),
        refund(5, 0, 0),
        consume(5, 3, 1),
        refund(6, 2, 1, 3),
        peek(7, 5),
        consume(8, 5),
        refund(29, 4),
        consume(30, 1),
        reset(30),
        refund(30, 5),
        peek(30),
    )
    yield of(
        "refunds at the end of what counts",
        4,
        20,
        consume(1, 1),
        consume(19, 1),
        refund(20, 0),
        consume(20, 1),
        refund(21, 1),
        peek(21),
        refund(40, 2),
        peek(40),
        consume(41, 4),
        refund(60, 3),
        peek(60),
        refund(81, 3),
    )
    yield of(
        "a refund of part of what one tick has",
        9,
        20,
        consume(5, 4, 2, 3),
        refund(6, 1),
        consume(7, 2),
        refund(24, 0),
        peek(24, 9),
        refund(25, 2),
    )
    yield of(
        "a reset",
        4,
        20,
        consume(19, 4),
        consume(20, 1),
        reset(20),
        peek(20),
        consume(20, 4, 1),
        reset(21),
        reset(21),
    )
    yield of(
        "a clock that steps back by less than a period",
        4,
        20,
        consume(25, 3),
        peek(24, 1, 2),
        consume(15, 1, 1),
        consume(5, 1),
        peek(5),
        consume(26, 1),
        consume(41, 1),
        consume(46, 2),
    )
    yield of(
        "a clock that steps back by more than a period",
        4,
        20,
        consume(100, 3),
        peek(79, 1, 2),
        consume(79, 2),
        peek(79, 4),
        consume(70, 1),
        consume(95, 2),
        consume(98, 1),
        consume(119, 4),
    )
    yield of(
        "a clock that steps back by far more",
        4,
        MINUTE,
        consume(7 * DAY, 4),
        consume(3, 1),
        consume(MINUTE + 2, 1),
        consume(MINUTE + 3, 1),
        consume(2 * MINUTE + 3, 4),
    )
    yield of(
        "a clock that leaps forward",
        4,
        20,
        consume(3, 4),
        consume(TEN_YEARS, 4, 1),
        consume(TEN_YEARS + 19, 1),
    )
    for wanted, period in (
        (3, SECOND),
        (7, 600 * SECOND),
        (30, MINUTE),
        (1_000, 86_400 * SECOND),
        (999_983, SECOND),
    ):
        third = period // wanted
        count = min(wanted, largest)
        yield of(
            f"{count} per {period // SECOND} s",
            count,
            period,
            consume(0, count, 1),
            consume(third - 1, 1),
            consume(third, 1),
            consume(third + 1, 1, 1),
            consume(2 * third, 1),
            consume(2 * third + 1, 1),
            consume(period - 1, 1),
            consume(period, 1, count),
            consume(period + third, 1),
            consume(2 * period, count),
            consume(3 * period + 1, count, 1),
        )
    yield from huge(of, largest)
    yield from changed(of, largest)
    if burst:
        yield from of_a_bucket(of)
    for seed in range(8):
        yield at_random(of, algorithm, seed)


def huge(of, largest):
    """Numbers at the limits of what is taken; ticks are coarse where their product is too large."""
    for wanted, period in (
        (largest, TEN_YEARS),
        (largest, SECOND),
        (1, TEN_YEARS),
        (999_999_937, DAY),
        (1_000_000, DAY),
    ):
        numbers = limit_of(
            "fixed-window", {"limit": min(wanted, largest), "period_us": period, "burst": None}
        )
        count = numbers.limit
        tick = Rates.of(numbers).tick
        begin = BEGIN // period * period
        steps = [step * tick for step in (-1, 0, 1)]
        yield of(
            f"{count} per {period} us",
            count,
            period,
            consume(tick - 1, count),
            consume(tick, 1),
            consume(period // 3, 1, count // 3 + 1),
            consume(period - tick, 1),
            *(consume(period + step, 1) for step in steps),
            *(consume(period * 3 + step, count) for step in steps),
            *(consume(period * 5 + step, count - 1 or 1) for step in steps),
            begin=begin,
        )


def changed(of, largest):
    """A limit with a name becomes another."""
    yield of(
        "N changes",
        5,
        20,
        consume(3, 4),
        becomes(2, 20, 2),
        consume(4, 1),
        peek(12, 1),
        consume(21, 1),
        becomes(9, 20, 9),
        consume(22, 3, 4),
        becomes(0, 20, 1),
        consume(23, 1),
        becomes(5, 20, 5),
        consume(24, 1),
    )
    yield of(
        "the period grows",
        5,
        20,
        consume(17, 2),
        consume(23, 3),
        becomes(5, 70, 5),
        consume(24, 1),
        consume(69, 1),
        consume(70, 1),
        consume(100, 5),
        consume(139, 5),
        consume(210, 5),
    )
    yield of(
        "the period shrinks",
        5,
        70,
        consume(3, 2),
        consume(69, 3),
        becomes(5, 20, 5),
        peek(70, 1),
        consume(70, 1),
        consume(79, 1),
        consume(80, 4),
        consume(99, 2),
        consume(120, 5),
    )
    yield of(
        "the tick changes",
        1_000,
        DAY,
        consume(1, 600),
        becomes(largest, DAY, largest),
        consume(DAY // 2, largest - 601),
        becomes(1_000, DAY, 1_000),
        consume(DAY // 2 + 1, 1),
    )


def of_a_bucket(of):
    yield of(
        "burst 1 spreads calls",
        3,
        SECOND,
        consume(0, 1, 1),
        consume(333_333, 1),
        consume(333_334, 1),
        consume(666_667, 1),
        consume(666_668, 1),
        consume(SECOND, 1),
        consume(SECOND + 1, 1),
        own_burst=1,
    )
    yield of(
        "a burst above N",
        2,
        20,
        consume(0, 7, 1),
        consume(9, 1),
        consume(10, 1),
        consume(30, 2, 1),
        consume(69, 5),
        consume(100, 7),
        own_burst=7,
    )
    yield of(
        "a burst below N",
        5,
        20,
        consume(0, 2, 1),
        consume(3, 1),
        consume(4, 1),
        consume(7, 1),
        consume(8, 1, 1),
        peek(9, 3),
        own_burst=2,
    )
    yield of(
        "asked once a second",
        30,
        MINUTE,
        consume(0, 30),
        *(consume(at * SECOND) for at in range(1, 41)),
    )
    yield of(
        "a full burst is back after one period",
        7,
        600 * SECOND,
        consume(0, 7),
        peek(600 * SECOND - 1, 7),
        consume(600 * SECOND, 7),
        refund(600 * SECOND, 0),
        consume(600 * SECOND + 1, 1),
    )
    yield of(
        "a million a second, one at a time",
        1_000_000,
        SECOND,
        consume(0, 1, 1),
        consume(1, 1),
        consume(3, 1, 1),
        own_burst=1,
    )
    yield of(
        "one in ten years, a burst",
        1,
        TEN_YEARS,
        consume(0, 8),
        consume(1, 1),
        consume(TEN_YEARS, 1),
        own_burst=8,
    )


def at_random(of, algorithm, seed):
    """Anything, on a clock that mostly goes forward."""
    chance = random.Random(f"{algorithm} {seed}")
    count, period = chance.randint(1, 9), chance.randint(1, 40)
    rows, time, calls, charged = [], 200, 0, []
    for _ in range(30):
        time += chance.choice([0, 0, 1, 2, 3, 5, 8, 13, 21, -3 if seed % 2 else 1])
        do = chance.choice(["consume"] * 7 + ["peek", "refund"])
        if do == "refund" and charged:
            rows.append(refund(time, charged.pop(chance.randrange(len(charged)))))
        else:
            do = "peek" if do == "peek" else "consume"
            rows.append([(do, time, chance.choice([1, 1, 1, 2, 3, count, count + 1, 0]))])
            if do == "consume":
                charged.append(calls)
                calls += 1
    return of(f"at random, {seed}", count, period, *rows, own_burst=chance.randint(1, 9))


def recorded(algorithm, told):
    """A history with what the model says of it."""
    clock = Clock(told["begin"])
    model = Model(clock)
    numbers = told["numbers"]
    limit = limit_of(algorithm, numbers)
    rows = []
    calls = []
    for do, at, what in told["rows"]:
        row = {"do": do}
        if do == "limit":
            what["burst"] = what["burst"] if algorithm == "token-bucket" else None
            limit = limit_of(algorithm, what)
            row |= what | {"tick_us": Rates.of(limit).tick}
        else:
            clock.now = told["begin"] + at
            row["now"] = clock.now
        if do in ("consume", "peek"):
            row["cost"] = what
            answer = getattr(model, do)(KEY, limit, cost=what)
            row |= figures_of(answer)
            if do == "consume":
                calls.append((len(rows), answer))
        elif do == "refund":
            row["row"], charge = calls[what]
            row["changed"] = model.refund(charge)
        elif do == "reset":
            row["states"] = model.reset(KEY, limit)
        kept = model.histories.get(model.place(KEY, limit))
        row["state"] = kept and kept.state()
        row["expires"] = kept and kept.ends * kept.rates.tick
        rows.append(row)
    tick = {"tick_us": Rates.of(limit_of(algorithm, numbers)).tick}
    return {"title": told["title"], "algorithm": algorithm, **numbers, **tick, "rows": rows}


def text_of(algorithm):
    """The file of an algorithm: a row a line, so that a change can be read."""
    cases = []
    for told in scripted(algorithm):
        case = recorded(algorithm, told)
        rows = ",\n  ".join(json.dumps(row) for row in case.pop("rows"))
        cases.append(f'{json.dumps(case)[:-1]}, "rows": [\n  {rows}\n]}}')
    about = "Recorded from the exact model; see noria.testing.vectors for what the fields mean."
    return f'{{"about": {json.dumps(about)}, "cases": [\n{",".join(cases)}\n]}}\n'


def main():
    for algorithm in ALGORITHMS:
        path = files("noria.testing.vectors").joinpath(f"{algorithm}.json")
        path.write_text(text_of(algorithm), encoding="utf-8")


if __name__ == "__main__":
    main()
