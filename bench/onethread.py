"""One thread: every algorithm of every library, side by side.

Cases: a hot key that is always allowed, the same key drained so that every call is denied, and
many keys, all of them known to the store before the clock starts. The logs, whose cost depends
on how much they hold, are filled from empty to full instead (see `measure.fill_race`), and
measured full for denials, at two sizes.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import measure
import peers
from measure import Lane
from peers import Rate, Session, Spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from journal import Journal

LOG = "sliding-window-log"
ONE_KEY = ["user:42"]
AMPLE = Rate(10_000_000, "minute")
DRAINED = Rate(100, "day")
MANY = Rate(1_000, "day")  # no key recovers, and is forgotten, during the run
SMALL, LARGE, LARGEST = 100, 10_000, 100_000  # logs; Noria's hold no more


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds: float  # a round
    keys: int
    log_calls: int


class Case(NamedTuple):
    """One table's part for one algorithm: many decisions of one kind, allowed or denied."""

    title: str
    algorithm: str
    rate: Rate
    keys: list[str]
    allowed: bool


def cases(plan: Plan) -> Iterator[Case]:
    """The steady ones; filling logs come beside them."""
    many = measure.key_names(plan.keys)
    for algorithm in peers.ALGORITHMS:
        if algorithm != LOG:
            yield Case("1 key, allowed", algorithm, AMPLE, ONE_KEY, allowed=True)
    for algorithm in peers.ALGORITHMS:
        yield Case("1 key, denied", algorithm, DRAINED, ONE_KEY, allowed=False)
    big = Rate(LARGE, "day")
    yield Case(f"1 key, denied, log of {LARGE:,}", LOG, big, ONE_KEY, allowed=False)
    for algorithm in peers.ALGORITHMS:
        yield Case(f"{plan.keys:,} keys, allowed", algorithm, MANY, many, allowed=True)


class Lanes(NamedTuple):
    """Who runs in a case: a lane with figures for each contender, and a bare one for peers."""

    figures: dict[Spec, Lane]
    bare: dict[Spec, Lane]

    @property
    def all(self) -> list[Lane]:
        return [*self.figures.values(), *self.bare.values()]


def run(plan: Plan, journal: Journal) -> list[dict[str, Any]]:
    """Every case, as rows."""
    rows: list[dict[str, Any]] = []
    for case in cases(plan):
        title = f"{case.title}: {case.algorithm}"
        journal.say(title)
        with (
            journal.attempt(title),
            _opened(case.algorithm, case.rate, journal) as sessions,
        ):
            for session in sessions.values():
                _prepare(session, case)
            lanes = _lanes(sessions)
            measure.race(lanes.all, case.keys, plan.rounds, plan.seconds, expect=case.allowed)
            rows += _rows(case.title, case.algorithm, lanes)
    for size in (SMALL, LARGE):
        title = f"allowed, logs filled from 0 to {size:,}"
        journal.say(title)
        with journal.attempt(title), _opened(LOG, Rate(size, "second"), journal) as sessions:
            lanes = _lanes(sessions)
            measure.fill_race(
                lanes.all, max(1, plan.log_calls // size), size, 1.0, min(plan.rounds, 5)
            )
            rows += _rows(title, LOG, lanes)
    title = f"allowed, a log filled from 0 to {LARGEST:,}"
    journal.say(title)
    with journal.attempt(title), _opened(LOG, Rate(LARGEST, "day"), journal) as sessions:
        lanes = _lanes(sessions)
        measure.growth_race(lanes.all, LARGEST, min(plan.rounds, 3))
        rows += _rows(title, LOG, lanes)
    return rows


@contextmanager
def _opened(algorithm: str, rate: Rate, journal: Journal) -> Iterator[dict[Spec, Session]]:
    with tempfile.TemporaryDirectory() as root:
        sessions: dict[Spec, Session] = {}
        for spec in peers.contenders(algorithm):
            with journal.attempt(f"one thread: {spec.label}, {algorithm}"):
                sessions[spec] = peers.open_session(spec, rate, f"{root}/{len(sessions)}")
        try:
            yield sessions
        finally:
            for session in sessions.values():
                session.close()


def _prepare(session: Session, case: Case) -> None:
    """Make every key known, and drain it where the case is about denials."""
    decide = session.bare or session.figures
    for key in case.keys:
        while session.allowed(decide(key)) and not case.allowed:
            pass


def _lanes(sessions: dict[Spec, Session]) -> Lanes:
    return Lanes(
        {s: Lane(s.label, o.figures, o.allowed) for s, o in sessions.items()},
        {s: Lane(s.label, o.bare, o.allowed) for s, o in sessions.items() if o.bare},
    )


def _rows(title: str, algorithm: str, lanes: Lanes) -> Iterator[dict[str, Any]]:
    ours = {spec.store: lane for spec, lane in lanes.figures.items() if spec.library == "noria"}

    def over(theirs: Lane) -> dict[str, float]:
        return {store: measure.ratio(lane, theirs) for store, lane in ours.items()}

    for spec, figures in lanes.figures.items():
        bare = lanes.bare.get(spec)
        yield {
            "case": title,
            "algorithm": algorithm,
            "contender": spec.label,
            "library": spec.library,
            "store": spec.store,
            "bare": bare and _numbers(bare),
            "figures": _numbers(figures),
            "noria_over_bare": bare and over(bare),
            "noria_over_figures": bare and over(figures),
        }


def _numbers(lane: Lane) -> dict[str, Any]:
    return {"per_second": lane.per_second, "rounds": lane.rates}
