"""Recorded histories of each algorithm, in JSON, for any store and any language.

A file holds cases, and a case is one limit on one unused key and what happens to it, row by row:

- `algorithm`, `limit`, `period_us`, `burst` (null unless a bucket), `tick_us` (the tick that times
  are rounded down to), `title`.
- a row's `do`: "consume" or "peek", of `cost` units; "refund" of the charge of `row` (the first row
  is 0); "reset"; "limit", from here on `limit`, `period_us`, `burst` and `tick_us` are others and
  the count is kept, as for a limit with a name.
- `now`, in microseconds since the epoch, and what is expected: `allowed`, `remaining`, and in
  microseconds `reset_after`, `grows_after`, `window_ends_after` (null without windows) and
  `retry_after`, null when allowed and "never" for a cost that cannot pass. For a refund `changed`,
  for a reset `states`, how many went.
- `state` is what is stored afterwards, null for nothing, in ticks; `expires` is the microsecond
  from which it equals nothing, so that it may be gone by then. A state begins with the tick of the
  newest charge. Then: the units in its window (fixed-window); those in the window before and in its
  own (sliding-window); the debt in units times the period's ticks (token-bucket); a list of
  [tick, units charged at it], of all that count (sliding-window-log).

The figures come from `noria.testing.model`, in exact fractions, and not from Noria's kernels.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from noria.model.limit import Limit
from noria.testing.driver import says
from noria.testing.promises import ALGORITHMS, must

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noria.testing.clock import Clock
    from noria.testing.driver import Driver

KEY = "vector"

FIGURES = ("allowed", "remaining", "reset_after", "grows_after", "window_ends_after", "retry_after")


def load() -> Iterator[dict[str, Any]]:
    """The cases of all files."""
    for algorithm in ALGORITHMS:
        text = files(__name__).joinpath(f"{algorithm}.json").read_text(encoding="utf-8")
        yield from json.loads(text)["cases"]


def limit_of(algorithm: str, numbers: dict[str, Any]) -> Limit:
    """The limit of a case, or of a row that changes it."""
    return Limit(
        numbers["limit"],
        numbers["period_us"] / 1_000_000,
        algorithm=algorithm,
        burst=numbers["burst"],
        name="vector",
    )


def figures_of(decision: Any) -> dict[str, Any]:
    """A decision of one limit as a row has it."""
    answer = says(decision)
    outcome = answer.outcomes[0]
    never = not outcome.allowed and outcome.retry_after is None
    return {
        "allowed": outcome.allowed,
        "remaining": outcome.remaining,
        "reset_after": outcome.reset_after,
        "grows_after": outcome.grows_after,
        "window_ends_after": outcome.window_ends_after,
        "retry_after": "never" if never else outcome.retry_after,
    }


def run(driver: Driver, clock: Clock, case: dict[str, Any]) -> None:
    """Play a case to a limiter whose store is empty; `AssertionError` at the first wrong figure."""
    limit = limit_of(case["algorithm"], case)
    charged: dict[int, Any] = {}
    for at, row in enumerate(case["rows"]):
        clock.now = row.get("now", clock.now)
        expected: dict[str, Any]
        if row["do"] == "limit":
            limit = limit_of(case["algorithm"], row)
            continue
        if row["do"] == "refund":
            expected = {"changed": row["changed"]}
            answer: dict[str, Any] = {"changed": driver.refund(charged[row["row"]])}
        elif row["do"] == "reset":
            expected = {"states": row["states"]}
            answer = {"states": driver.reset(KEY, limit)}
        else:
            expected = {name: row[name] for name in FIGURES}
            call = driver.consume if row["do"] == "consume" else driver.peek
            charged[at] = call(KEY, limit, cost=row["cost"])
            answer = figures_of(charged[at])
        must(
            answer == expected,
            f"C14: {case['algorithm']}, {case['title']}: row {at} as recorded",
            row=row,
            answer=answer,
        )
