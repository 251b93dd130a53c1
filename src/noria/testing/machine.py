"""Any history at all: a limiter beside the model, driven by Hypothesis step by step.

Limits are tiny, N up to 5 and periods up to 20 microseconds, so that edges are met all the time and
what fails shrinks to a few lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from noria.model.limit import Limit
from noria.testing.clock import Clock
from noria.testing.driver import Driver, Says, says
from noria.testing.model import Model, Rates
from noria.testing.promises import ALGORITHMS, lookback, must, must_be_bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from noria.testing.driver import AnyLimiter
    from noria.testing.model import ModelDecision

KEYS = ("a", "b", "a:b")
LIMITS = 6

keys = st.sampled_from(KEYS)
counts = st.integers(0, 5)
bursts = st.integers(1, 5)
periods = st.integers(1, 20)
costs = st.one_of(st.just(1), st.integers(0, 7))
chosen = st.lists(st.integers(0, LIMITS - 1), min_size=1, max_size=3, unique=True)


class Histories(RuleBasedStateMachine):
    """The rules; `make` gives the limiter under test."""

    make: Callable[[Clock], AnyLimiter]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.driver = Driver(type(self).make(self.clock))
        self.model = Model(self.clock)
        self.limits: list[Limit] = []
        self.decisions: list[tuple[Any, ModelDecision]] = []
        self.admitted: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.denied: tuple[str, list[Limit], int, int] | None = None

    def teardown(self) -> None:
        self.driver.close()

    # The limits: one of each algorithm, one shadow, one more.

    @initialize(
        offset=st.integers(0, 40),
        numbers=st.lists(st.tuples(counts, periods, bursts), min_size=LIMITS, max_size=LIMITS),
        shadow=st.sampled_from(ALGORITHMS),
        more=st.sampled_from(ALGORITHMS),
    )
    def begin(
        self, offset: int, numbers: list[tuple[int, int, int]], shadow: str, more: str
    ) -> None:
        self.clock.advance(offset)
        algorithms = (*ALGORITHMS, more, shadow)
        self.limits = [
            limit_of(number, algorithms[number], *figures, shadow=number == LIMITS - 1)
            for number, figures in enumerate(numbers)
        ]

    @rule(number=st.integers(0, LIMITS - 1), count=counts, burst=bursts)
    def change_count(self, number: int, count: int, burst: int) -> None:
        """C19: N or burst changes under a name; what was counted stays."""
        old = self.limits[number]
        self._change(
            number, limit_of(number, old.algorithm, count, _period(old), burst, shadow=old.shadow)
        )

    @rule(number=st.integers(0, LIMITS - 1), period=periods)
    def change_period(self, number: int, period: int) -> None:
        """C19: the period changes under a name; what was counted is converted, never in favour."""
        old = self.limits[number]
        burst = old.burst or 1
        self._change(
            number, limit_of(number, old.algorithm, old.limit, period, burst, shadow=old.shadow)
        )
        # Which window an earlier charge would be taken out of is not promised.
        self.decisions.clear()

    def _change(self, number: int, limit: Limit) -> None:
        self.limits[number] = limit
        self.denied = None
        for key in KEYS:
            self.admitted.pop((key, number), None)

    # What callers do.

    @rule(key=keys, numbers=chosen, cost=costs)
    def hit(self, key: str, numbers: list[int], cost: int) -> None:
        limits = [self.limits[number] for number in numbers]
        self._charge([(key, number, cost) for number in numbers], key, limits, cost)

    @rule(
        items=st.lists(st.tuples(keys, st.integers(0, LIMITS - 1), costs), min_size=1, max_size=4)
    )
    def hit_many(self, items: list[tuple[str, int, int]]) -> None:
        self._charge(items, None, [], 0)

    def _charge(
        self, items: list[tuple[str, int, int]], key: str | None, limits: list[Limit], cost: int
    ) -> None:
        listed = [(each, self.limits[number], units) for each, number, units in items]
        if key is None:
            real = self.driver.consume_many(listed)
        else:
            real = self.driver.consume(key, *limits, cost=cost)
        expected = self.model.consume_many(listed)
        self._compare(real, expected)
        self.decisions.append((real, expected))
        self.denied = None
        if not expected.allowed:
            if key is not None and real.retry_after is not None:
                self.denied = key, limits, cost, says(real).retry_after or 0
            return
        fits = [outcome.allowed for outcome in expected.outcomes]
        for (each, number), fit in zip(
            dict.fromkeys(item[:2] for item in items), fits, strict=True
        ):
            if fit:
                units = sum(one[2] for one in items if one[:2] == (each, number))
                self._remember(each, number, units)

    def _is_as_written(self, key: str, limits: list[Limit]) -> bool:
        """Whether no limit has changed since its state was written, and with it when that ends."""
        places = [(self.model.place(key, limit), Rates.of(limit)) for limit in limits]
        kept = [(self.model.histories.get(place), rates) for place, rates in places]
        return all(history is None or history.rates == rates for history, rates in kept)

    def _remember(self, key: str, number: int, units: int) -> None:
        """C1, as the calls are admitted; a clock that steps back is held at the newest charge."""
        history = self.admitted.setdefault((key, number), [])
        if units:
            at = max(self.clock.now, history[-1][0]) if history else self.clock.now
            history.append((at, units))
            must_be_bounded(self.limits[number], history)

    @rule(key=keys, numbers=chosen, cost=costs)
    def look(self, key: str, numbers: list[int], cost: int) -> None:
        """C5: a peek says what a hit would say, and changes nothing (the model's does not)."""
        limits = [self.limits[number] for number in numbers]
        real = self.driver.peek(key, *limits, cost=cost)
        self._compare(real, self.model.peek(key, *limits, cost=cost))

    @rule(key=keys, number=st.integers(0, LIMITS - 1))
    def weigh(self, key: str, number: int) -> None:
        """C6: what remains, and not one unit more, is what would be admitted now."""
        limit = self.limits[number]
        says_now = says(self.driver.peek(key, limit, cost=0)).outcomes[0]
        left = says_now.remaining
        fits = says(self.driver.peek(key, limit, cost=left)).outcomes[0].allowed
        more = says(self.driver.peek(key, limit, cost=left + 1)).outcomes[0].allowed
        must(
            left >= 0 and fits and not more,
            "C6: `remaining` is the most that passes now",
            says=says_now,
        )

    @precondition(lambda self: self.decisions)
    @rule(which=st.integers(0, 50))
    def refund(self, which: int) -> None:
        """C9: a charge comes back once, while it weighs; the model knows when that is."""
        real, expected = self.decisions[which % len(self.decisions)]
        answers = self.driver.refund(real), self.model.refund(expected)
        must(
            answers[0] == answers[1],
            "C9: a refund says whether it changed anything",
            answers=answers,
        )
        self.admitted.clear()
        self.denied = None

    @rule(key=keys, numbers=st.one_of(st.none(), chosen))
    def reset(self, key: str, numbers: list[int] | None) -> None:
        """A reset forgets those limits of the key and says how many states went."""
        limits = [self.limits[number] for number in numbers or ()]
        # Where all was given back an empty state may be left, and count as one.
        found = [place for place in self.model.histories if place[0] == key]
        if numbers is not None:
            wanted = {self.model.place(key, limit) for limit in limits}
            found = [place for place in found if place in wanted]
        weighing = sum(self.model.weighs(place) for place in found)
        self.model.reset(key, *limits)
        gone = self.driver.reset(key, *limits)
        must(
            weighing <= gone <= len(found),
            "reset says how many live states it forgot",
            gone=gone,
            weighing=weighing,
            kept=len(found),
        )
        self.denied = None
        for number in range(LIMITS) if numbers is None else numbers:
            self.admitted.pop((key, number), None)

    # What time does.

    @rule(ticks=st.one_of(st.integers(1, 4), st.integers(1, 45)))
    def advance(self, ticks: int) -> None:
        self.clock.advance(ticks)
        self.denied = None

    @precondition(lambda self: self.denied is not None)
    @rule()
    def wait_as_told(self) -> None:
        """C3: the call passes after exactly `retry_after`, and not a tick earlier."""
        if self.denied is None:
            return
        key, limits, cost, retry = self.denied
        must(
            0 < retry <= max(map(lookback, limits)) + 45,
            "C2: nobody waits longer than the look-back",
            retry=retry,
            limits=limits,
        )
        self.clock.advance(retry - 1)
        early = self.driver.peek(key, *limits, cost=cost)
        must(
            not early.allowed or not self._is_as_written(key, limits),
            "C3: one tick before `retry_after` is too early",
            retry=retry,
            limits=limits,
        )
        self.clock.advance(1)
        late = self.driver.peek(key, *limits, cost=cost)
        must(
            late.allowed,
            "C3: the call passes at `retry_after`",
            retry=retry,
            limits=limits,
            says=says(late),
        )
        self.denied = None

    @rule(ticks=st.integers(1, 45))
    def step_back(self, ticks: int) -> None:
        """C10: a clock that steps back frees nothing, to the tick as in the model."""
        # What has run out may be gone or not: time must not come back to where it counts.
        for key, name in list(self.model.histories):
            if not self.model.lives((key, name)):
                number = next(
                    n
                    for n, limit in enumerate(self.limits)
                    if self.model.place("", limit)[1] == name
                )
                self.driver.reset(key, self.limits[number])
                self.model.reset(key, self.limits[number])
                self.admitted.pop((key, number), None)
        self.clock.advance(-ticks)
        self.denied = None
        for (key, name), history in self.model.histories.items():
            if history.last - self.clock.now > history.rates.window:
                # What was counted moves to now: charges before that are not dated any more.
                for number, limit in enumerate(self.limits):
                    if self.model.place(key, limit)[1] == name:
                        self.admitted.pop((key, number), None)
                self.decisions.clear()

    def _compare(self, real: Any, expected: ModelDecision) -> None:
        """C14: every figure of every limit, and those of the decision, are the model's."""
        must_agree(says(real), says(expected))


def must_agree(real: Says, expected: Says) -> None:
    """C14: the same decision, figure by figure; of outcomes that tie, either may speak for it."""
    promise = "C14: every store decides as the model does"
    for mine, theirs in zip(real.outcomes, expected.outcomes, strict=True):
        must(mine == theirs, promise, real=mine, expected=theirs)
    must(
        real._replace(outcomes=(), limit=None) == expected._replace(outcomes=(), limit=None),
        promise,
        real=real,
        expected=expected,
    )
    spoken: list[int | None] = [one.limit for one in expected.outcomes if not one.shadow]
    must(real.limit in (spoken or [None]), promise, real=real, expected=expected)


def limit_of(  # noqa: PLR0913 - the numbers of a limit
    number: int, algorithm: str, count: int, period: int, burst: int, *, shadow: bool = False
) -> Limit:
    """A tiny limit by its number, which names it; the period in microseconds."""
    return Limit(
        count,
        period / 1_000_000,
        algorithm=algorithm,
        burst=burst if algorithm == "token-bucket" else None,
        name=f"limit {number}",
        shadow=shadow,
    )


def _period(limit: Limit) -> int:
    return round(limit.period * 1_000_000)
