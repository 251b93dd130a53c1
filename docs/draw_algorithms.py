"""Draw what each algorithm admits of the same bursts: `python docs/draw_algorithms.py > FILE.svg`.

The kernels decide and this file only draws, so the picture cannot differ from the code. The result
is docs/assets/algorithms.svg, and a test holds the two together. Positions are computed from whole
milliseconds and written with one decimal, so that every machine prints the same bytes.
"""  # noqa: INP001 - a script

from __future__ import annotations

import sys
from html import escape

from noria.algorithms import KERNELS

LIMIT = 10
PERIOD = 10_000
"""Milliseconds, as all times here; the kernels take any whole ticks."""
BURSTS = (8_400, 10_400, 15_000, 18_400, 25_000)
CALLS = 10
SPACING = 100
FROM, TO = 6_000, 30_000

WIDTH = 860
LEFT, RIGHT = 44, 836
TOP = 84
PANEL = 138
SCALE = 3.2
"""Pixels of one call in the count."""
TALLEST = 20

PANELS = (
    ("fixed-window", "Fixed window", "counts each window of the clock, and forgets it at the edge"),
    ("sliding-window", "Sliding window (default)", "the window before weighs in, and fades"),
    ("sliding-window-log", "Sliding-window log", "remembers every call that was admitted"),
    ("token-bucket", "Token bucket", "a burst of 10 when full, refilled by one a second"),
)

STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
text { font-size: 12px; fill: #4b5563 }
.title { font-size: 17px; font-weight: 600; fill: #111827 }
.name { font-size: 14px; font-weight: 600; fill: #111827 }
.end { text-anchor: end }
.middle { text-anchor: middle }
.strong { font-weight: 600; fill: #111827 }
.over-text { font-weight: 600; fill: #b91c1c }
.ground { fill: #fbfbfa; stroke: #d6d9de }
.base { stroke: #9ca3af; fill: none }
.edge { stroke: #6b7280; stroke-dasharray: 2 3; stroke-width: 1.3; fill: none }
.limit { stroke: #374151; stroke-dasharray: 7 4; stroke-width: 1.5; fill: none }
.count { fill: #bfdbfe }
.over { fill: #fca5a5 }
.line { stroke: #1d4ed8; stroke-width: 1.6; fill: none; stroke-linejoin: round }
.admitted { stroke: #1d4ed8; stroke-width: 2.2; fill: none }
.refused { stroke: #c2410c; stroke-width: 1.6; fill: none }
.asked { stroke: #6b7280; stroke-width: 2.2; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #aab2bf }
.title, .name, .strong { fill: #f3f4f6 }
.over-text { fill: #fca5a5 }
.ground { fill: #14181f; stroke: #343b46 }
.base { stroke: #6b7280 }
.edge { stroke: #aab2bf }
.limit { stroke: #d1d5db }
.count { fill: #1e3a6e }
.over { fill: #8f2424 }
.line, .admitted { stroke: #7db2ff }
.refused { stroke: #fb923c }
.asked { stroke: #9ca3af }
}
"""


def x(time: int) -> float:
    """Where a time is, from the left."""
    return LEFT + (RIGHT - LEFT) * (time - FROM) / (TO - FROM)


def tag(name: str, content: str = "", /, **attributes: object) -> str:
    """An element; `class_` stands for class, and an underscore inside a name for a hyphen."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{shown(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{words}>{content}</{name}>" if content else f"<{name}{words}/>"


def shown(value: object) -> str:
    """An attribute's value."""
    return f"{value:.1f}" if isinstance(value, float) else escape(str(value))


def text(at: float, y: float, content: str, kind: str = "") -> str:
    """A line of text, of a class of the style sheet."""
    return tag("text", escape(content), x=at, y=y, **({"class_": kind} if kind else {}))


def ticks(times: list[int], top: float, bottom: float, kind: str) -> str:
    """A short upright line for each time."""
    path = "".join(f"M{x(time):.1f} {top:.1f}V{bottom:.1f}" for time in times)
    return tag("path", d=path, class_=kind) if path else ""


def asked() -> list[int]:
    """The times of all calls."""
    return [start + SPACING * call for start in BURSTS for call in range(CALLS)]


def admitted_by(algorithm: str) -> list[int]:
    """The times of the calls that the kernel lets pass."""
    step = KERNELS[algorithm].step
    state = None
    admitted = []
    for time in asked():
        passes, state, *_ = step((LIMIT, PERIOD, LIMIT), state, time, 1)
        if passes:
            admitted.append(time)
    return admitted


def counts(admitted: list[int]) -> list[tuple[int, int]]:
    """(time, admitted calls in the period before it) wherever that number changes."""
    changes = sorted([(time, 1) for time in admitted] + [(time + PERIOD, -1) for time in admitted])
    count = 0
    steps = {FROM: 0}
    for time, change in changes:
        count += change
        steps[time] = count
    return [(time, count) for time, count in steps.items() if time <= TO]


def area(steps: list[tuple[int, int]], y: float, low: int, high: int) -> str:
    """The outline of the part of the count between two heights."""
    path = f"M{x(FROM):.1f} {y - low * SCALE:.1f}"
    for time, count in steps:
        path += f"H{x(time):.1f}V{y - min(max(count, low), high) * SCALE:.1f}"
    return path + f"H{x(TO):.1f}"


def panel(y: float, algorithm: str, name: str, words: str) -> list[str]:
    """One algorithm; `y` is its base line."""
    admitted = admitted_by(algorithm)
    refused = [time for time in asked() if time not in admitted]
    steps = counts(admitted)
    most = max(count for _, count in steps)
    limit = y - LIMIT * SCALE
    drawn = [
        tag("text", f'<tspan class="name">{escape(name)}</tspan>: {escape(words)}', x=14, y=y - 76),
        text(
            RIGHT,
            y - 76,
            f"most in any 10 s: {most}",
            "end over-text" if most > LIMIT else "end strong",
        ),
    ]
    drawn += [
        tag("path", d=area(steps, y, 0, LIMIT) + f"V{y:.1f}Z", class_="count"),
        tag("path", d=area(steps, y, LIMIT, TALLEST) + f"V{limit:.1f}Z", class_="over")
        if most > LIMIT
        else "",
        tag("path", d=f"M{LEFT} {y:.1f}H{RIGHT}", class_="base"),
        tag("path", d=area(steps, y, 0, TALLEST), class_="line"),
        tag("path", d=f"M{LEFT} {limit:.1f}H{RIGHT}", class_="limit"),
        edges(y) if KERNELS[algorithm].rest((LIMIT, PERIOD, LIMIT), None, 0)[1] else "",
        ticks(admitted, y + 4, y + 14, "admitted"),
        ticks(refused, y + 17, y + 23, "refused"),
    ]
    drawn += [
        text(LEFT - 6, y - count * SCALE + 4, str(count), "end") for count in (0, LIMIT, TALLEST)
    ]
    for start in BURSTS:
        inside = sum(start <= time < start + SPACING * CALLS for time in admitted)
        drawn.append(
            text(x(start + SPACING * CALLS // 2), y + 37, f"{inside} of {CALLS}", "middle")
        )
    return drawn


def edges(y: float) -> str:
    """Where one window ends and the next begins."""
    inside = range(-(-FROM // PERIOD) * PERIOD, TO, PERIOD)
    path = "".join(f"M{x(edge):.1f} {y - TALLEST * SCALE - 4:.1f}V{y + 26:.1f}" for edge in inside)
    return tag("path", d=path, class_="edge")


def picture() -> str:
    """The whole of it."""
    height = TOP + len(PANELS) * PANEL + 52
    peaks = (
        f"{name}: at most {max(count for _, count in counts(admitted_by(algorithm)))}."
        for algorithm, name, _ in PANELS
    )
    described = " ".join(
        [
            f"Five bursts of {CALLS} calls meet a limit of {LIMIT} calls per 10 seconds. For each",
            "algorithm a curve shows how many calls were admitted in the last 10 seconds; marks",
            "below it which calls were admitted and which refused. Admitted in any 10 seconds:",
            *peaks,
        ]
    )
    drawn = [
        tag("title", "What four rate-limiting algorithms admit of the same bursts", id="title"),
        tag("desc", escape(described), id="desc"),
        tag("style", STYLE),
        tag("rect", class_="ground", x=0.5, y=0.5, width=WIDTH - 1, height=height - 1, rx=8),
        text(
            14, 28, f"The same five bursts of {CALLS} calls, limit {LIMIT} per 10 seconds", "title"
        ),
        *legend(50),
        text(14, TOP - 7, "asked"),
        ticks(asked(), TOP - 17, TOP - 7, "asked"),
    ]
    y = float(TOP)
    for algorithm, name, words in PANELS:
        y += PANEL
        drawn += panel(y - 40, algorithm, name, words)
    drawn += axis(y + 18)
    body = "\n".join(filter(None, drawn))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title desc">\n{body}\n</svg>\n'
    )


def legend(y: float) -> list[str]:
    """What the marks mean."""
    return [
        tag("path", d=f"M16 {y - 9:.1f}V{y + 1:.1f}", class_="admitted"),
        text(24, y, "admitted"),
        tag("path", d=f"M92 {y - 7:.1f}V{y - 1:.1f}", class_="refused"),
        text(100, y, "refused"),
        tag("rect", class_="count", x=162, y=y - 9, width=18, height=10),
        text(186, y, "admitted in the last 10 s"),
        tag("rect", class_="over", x=344, y=y - 9, width=18, height=10),
        text(368, y, "above the limit"),
        tag("path", d=f"M472 {y - 4:.1f}H500", class_="limit"),
        text(506, y, "limit"),
        tag("path", d=f"M554 {y - 10:.1f}V{y + 2:.1f}", class_="edge"),
        text(562, y, "edge of a window"),
    ]


def axis(y: float) -> list[str]:
    """The seconds, below all panels."""
    marks = range(FROM, TO + 1, 2_000)
    path = f"M{LEFT} {y:.1f}H{RIGHT}" + "".join(f"M{x(mark):.1f} {y:.1f}v5" for mark in marks)
    labels = [text(x(mark), y + 19, f"{mark // 1000} s", "middle") for mark in marks]
    return [tag("path", d=path, class_="base"), *labels]


if __name__ == "__main__":
    sys.stdout.write(picture())
