"""The run as text: plain tables, widest reading first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

Row = Sequence[str]


def table(title: str, head: Row, rows: Iterable[Row], notes: Sequence[str] = ()) -> str:
    """Columns as wide as their widest cell; all but the first two flush right."""
    body = list(rows)
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]

    def line(row: Row) -> str:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([title, *notes, rule, line(head), rule, *map(line, body), ""])


def _whole(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _times(ratios: dict[str, float] | None, store: str) -> str:
    return f"{ratios[store]:.2f}x" if ratios and store in ratios else "-"


def _machine(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    build = "compiled" if machine["noria_compiled"] else "pure Python"
    facts = {
        "Machine": f"{machine['processor']}, {machine['cores']} cores",
        "Load": f"{machine['load_average']:.2f} at the start",
        "System": machine["system"],
        "Python": machine["python"],
        "Packages": f"{versions}; noria is {build}",
    }
    return "\n".join([*(f"{name:<9} {fact}" for name, fact in facts.items()), ""])


def _one_thread(rows: list[dict[str, Any]]) -> str:
    cases = groupby(rows, key=lambda row: row["case"])
    return "\n".join(_case(title, list(group)) for title, group in cases)


def _case(title: str, rows: list[dict[str, Any]]) -> str:
    head = (
        "algorithm",
        "contender",
        "bare/s",
        "with figures/s",
        "memory:bare",
        "shared:bare",
        "memory:figures",
        "shared:figures",
    )
    return table(
        f"One thread, {title}",
        head,
        [
            (
                row["algorithm"],
                row["contender"],
                _whole(row["bare"] and row["bare"]["per_second"]),
                _whole(row["figures"]["per_second"]),
                _times(row["noria_over_bare"], "memory"),
                _times(row["noria_over_bare"], "shared"),
                _times(row["noria_over_figures"], "memory"),
                _times(row["noria_over_figures"], "shared"),
            )
            for row in rows
        ],
    )


def _processes(rows: list[dict[str, Any]]) -> str:
    return table(
        "Four processes, decisions a second in all",
        ("algorithm", "contender", "keys", "counted", "decisions/s"),
        [
            (
                row["algorithm"] + (" (full: mostly denied)" if row["mostly_denied"] else ""),
                row["contender"],
                f"{row['keys']:,}",
                "together" if row["one_count"] else "apart, NOT shared",
                _whole(row["per_second"]),
            )
            for row in rows
        ],
        [
            "limits and throttled-py have nothing comparable without a server: their rows, and our",
            "memory's, are four separate counts (each process admits the whole limit), for scale.",
        ],
    )


def _bytes(rows: list[dict[str, Any]]) -> str:
    return table(
        "Bytes per key (memory: resident set; shared: file pages in use)",
        ("algorithm", "contender", "charged per key", "keys", "bytes/key"),
        [
            (
                row["algorithm"],
                row["contender"],
                f"{row['charged_per_key']:,}",
                f"{row['keys']:,}",
                _whole(row["bytes_per_key"]),
            )
            for row in rows
        ],
    )


def _tasks(rows: list[dict[str, Any]]) -> str:
    return table(
        "asyncio, 100 tasks, each decides and then yields",
        ("algorithm", "contender", "decisions/s", "1 ms ticks at most 5 ms late"),
        [
            (
                row["algorithm"],
                row["contender"],
                _whole(row["per_second"]),
                f"{row['ticks_on_time']:.1%}",
            )
            for row in rows
        ],
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _import(took: dict[str, Any]) -> str:
    return table(
        f"Import time, median of {took['runs']} fresh interpreters each, by turns",
        ("what", "", "ms", "ratio"),
        [
            ("import noria", "", _ms(took["noria_seconds"]), f"{took['ratio']:.2f}x"),
            (took["base"], "", _ms(took["base_seconds"]), "1.00x"),
            ("from noria import Limit, Limiter", "", _ms(took["noria_names_seconds"]), ""),
        ],
    )


def _targets(rows: list[dict[str, Any]]) -> str:
    def number(value: float) -> str:
        return f"{value:,.0f}" if value >= 1_000 else f"{value:.2f}"

    return table(
        "Against the targets (ours with remaining and retry_after read, theirs bare)",
        ("what", "", "target", "measured", "met"),
        [
            (
                row["what"],
                "",
                number(row["aim"]),
                number(row["measured"]),
                "yes" if row["met"] else "NO",
            )
            for row in rows
        ],
    )


def _skipped(reasons: dict[str, str]) -> str:
    lines = ["Not measured"]
    for reason in dict.fromkeys(reasons.values()):
        lines.append(f"  {reason}")
        lines += (f"    {name}" for name, why in reasons.items() if why == reason)
    return "\n".join([*lines, ""])


_SECTIONS: dict[str, Callable[[Any], str]] = {
    "one_thread": _one_thread,
    "processes": _processes,
    "bytes_per_key": _bytes,
    "asyncio": _tasks,
    "import": _import,
    "targets": _targets,
    "skipped": _skipped,
}


def render(results: dict[str, Any]) -> str:
    """The whole report."""
    parts = [_machine(results["machine"])]
    for name, draw in _SECTIONS.items():
        if found := results.get(name):
            parts.append(draw(found))
    return "\n".join(parts)
