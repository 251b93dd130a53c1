"""The figures Noria sets itself, each a ratio to a named peer of the same run.

Our side is always the decision with `remaining` and `retry_after` read; theirs is the bare one.
Where a peer offers several forms of an algorithm, the fastest counts. Nothing here fails a run:
the table says what was met.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from measure import counted


class Aim(NamedTuple):
    store: str
    library: str
    algorithm: str
    times: float


AIMS = [
    Aim("memory", "limits", "fixed-window", 2.0),
    Aim("memory", "limits", "sliding-window", 3.5),
    Aim("memory", "limits", "sliding-window-log", 3.5),
    Aim("memory", "throttled-py", "fixed-window", 3.0),
    Aim("memory", "throttled-py", "sliding-window", 3.0),
    Aim("memory", "throttled-py", "token-bucket", 3.0),
    Aim("shared", "limits", "fixed-window", 0.8),
    Aim("shared", "limits", "sliding-window", 1.3),
    Aim("shared", "limits", "sliding-window-log", 1.3),
]
ALL_PROCESSES = 150_000  # decisions a second on 2 cores
IMPORT = 1.3
# The logs that cost a list-based limiter most; the smaller ones are in the table beside them.
HEADLINE = ("1 key, allowed", "allowed, a log filled from 0 to 100,000")


def compare(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per aim that could be measured in this run."""
    return [*_one_thread(results), *_processes(results), *_import(results)]


def _row(what: str, aim: float, measured: float, *, met: bool) -> dict[str, Any]:
    return {"what": what, "aim": aim, "measured": measured, "met": met}


def _one_thread(results: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for store, library, algorithm, times in AIMS:
        against = [
            row
            for row in results.get("one_thread", [])
            if row["case"] in HEADLINE
            and (row["library"], row["algorithm"]) == (library, algorithm)
            and store in row["noria_over_bare"]
        ]
        if against:
            row = min(against, key=lambda row: row["noria_over_bare"][store])
            measured = row["noria_over_bare"][store]
            what = f"{store}, {algorithm}: times {row['contender']}, bare"
            rows.append(_row(what, times, measured, met=measured >= times))
    return rows


def _processes(results: dict[str, Any]) -> list[dict[str, Any]]:
    shared = [row for row in results.get("processes", []) if row["one_count"]]
    rows = []
    for keys in sorted({row["keys"] for row in shared}):
        row = min((r for r in shared if r["keys"] == keys), key=lambda r: r["per_second"])
        what = f"four processes, shared, {counted(keys)}: decisions/s, lowest ({row['algorithm']})"
        total = row["per_second"]
        rows.append(_row(what, ALL_PROCESSES, total, met=total >= ALL_PROCESSES))
    return rows


def _import(results: dict[str, Any]) -> list[dict[str, Any]]:
    took = results.get("import")
    if not took:
        return []
    return [
        _row(f"{what}: times {took['base']} (at most)", IMPORT, ratio, met=ratio <= IMPORT)
        for what, ratio in (
            ("import noria", took["ratio"]),
            ("from noria import Limit, Limiter", took["names_ratio"]),
        )
    ]
