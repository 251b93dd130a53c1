"""The demo: a client that runs into the limits of a sample API, and what there is to see.

It proves what it says. Two worker processes that know nothing of each other serve one API; of more
requests than a limit allows exactly as many pass as it says, whichever worker they reach; and who
comes back when Retry-After is over is let in, but not earlier.
"""

from __future__ import annotations

import http.client
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

import noria
from noria.cli.sample import HELLO, LOGIN
from noria.cli.server import DemoError, serving
from noria.model.rate import format_rate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from noria.cli.server import Answer, Server
    from noria.model.limit import Limit

__all__ = ["DemoError", "play"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OK = 200
_REFUSED = 429
_REQUESTS = 14
_STORM = 40
_AT_ONCE = 8
_ROUNDS = 20
_SHOWN = ("content-type", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
_SHOWN_REFUSED = ("retry-after", "cache-control")


def play(*, port: int, workers: int, store: str | None, once: bool) -> None:
    """Run the demo; `DemoError` where a limit was not kept, KeyboardInterrupt on Ctrl-C."""
    console = Console(highlight=False)
    with _ended_by_signals(), serving(port, workers, store) as server:
        console.print(f"[bold]Noria {noria.__version__} demo[/]")
        console.print(f"A sample API on http://127.0.0.1:{server.port}")
        console.print(f"served by {_processes(server)}")
        console.print(f"that share a store: {server.store}\n", soft_wrap=True, markup=False)
        try:
            _limit_holds(server, console)
            _storm_holds(server, console)
            _wait_is_true(server, console)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DemoError(f"a request failed: {error!r}") from error
        if not once:
            _stay(server, console)
    console.print("The demo has ended, and what it started with it.")


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """Let the signals that end a process raise KeyboardInterrupt, so that it cleans up first."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _limit_holds(server: Server, console: Console) -> None:
    _title(
        console, 1, f"{_REQUESTS} requests for /hello, limited to {_rate(HELLO)} for each caller"
    )
    answers: list[Answer] = []
    for number in range(_ROUNDS):
        answers = [server.get("/hello", f"first-{number}") for _ in range(_REQUESTS)]
        # Which worker gets a connection is up to the system: it may be one and the same each time.
        if len({answer.worker for answer in answers}) == len(server.workers):
            break
    console.print(_table(answers))
    allowed = next((answer for answer in answers if answer.status == _OK), answers[0])
    console.print(_side_by_side(allowed, answers[-1]))
    console.print(json.dumps(answers[-1].body, indent=2), markup=False, soft_wrap=True)
    counts = [sum(answer.worker == worker for answer in answers) for worker in server.workers]
    _check(
        _passed(answers) == HELLO.limit and all(counts),
        f"{_passed(answers)} of {_REQUESTS} passed, the limit is {HELLO.limit}; "
        f"the workers answered {' and '.join(map(str, counts))} of them",
        console,
    )


def _storm_holds(server: Server, console: Console) -> None:
    _title(console, 2, f"{_STORM} requests for /hello from another caller, {_AT_ONCE} at a time")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        calls = [pool.submit(server.get, "/hello", "second") for _ in range(_STORM)]
    passed = _passed([call.result() for call in calls])
    _check(
        passed == HELLO.limit, f"{passed} of {_STORM} passed, the limit is {HELLO.limit}", console
    )


def _wait_is_true(server: Server, console: Console) -> None:
    _title(console, 3, f"/login, limited to {_rate(LOGIN)}: use it up, then wait as told")
    asked = [server.get("/login", "third") for _ in range(LOGIN.limit + 1)]
    wait, since = asked[-1].retry_after, time.monotonic()
    with console.status(f"Waiting {wait} s, as Retry-After says"):
        _sleep_until(since + wait / 2)
        asked.append(server.get("/login", "third"))
        _sleep_until(since + wait)
        asked.append(server.get("/login", "third"))
    at = ["at once"] * (LOGIN.limit + 1) + [f"{wait / 2:g} s later", f"{wait} s later"]
    console.print(_table(asked, at))
    expected = [_OK] * LOGIN.limit + [_REFUSED, _REFUSED, _OK]
    _check(
        [answer.status for answer in asked] == expected and wait > 0,
        f"Retry-After was {wait}: refused before that, let in when it was over",
        console,
    )


def _stay(server: Server, console: Console) -> None:
    url = f"http://127.0.0.1:{server.port}"
    many = (
        f"for i in $(seq 12); do curl -s -o /dev/null -w '%{{http_code}} ' {url}/hello; done; echo"
    )
    try:
        console.print("[bold]Try it[/]")
        for line in (f"curl -i {url}/hello", f"curl -i {url}/login", many):
            console.print(f"  {line}", markup=False, soft_wrap=True)
        console.print("Ctrl-C ends it.")
        server.process.wait()
    except KeyboardInterrupt:
        console.print()
    else:
        raise DemoError("the server ended by itself")


def _check(held: bool, text: str, console: Console) -> None:  # noqa: FBT001
    if not held:
        raise DemoError(f"not what the limit promises: {text}")
    console.print(f"[bold green]ok[/]  {text}\n")


def _table(answers: Sequence[Answer], notes: Sequence[str] = ()) -> Table:
    table = Table()
    for heading in (
        "#",
        "status",
        "worker",
        "remaining",
        "Retry-After",
        *(["when"] if notes else []),
    ):
        table.add_column(heading, justify="left" if heading == "when" else "right")
    for number, answer in enumerate(answers):
        get = answer.headers.get
        table.add_row(
            str(number + 1),
            f"[{'green' if answer.status == _OK else 'red'}]{answer.status}[/]",
            answer.worker,
            get("x-ratelimit-remaining", "-"),
            get("retry-after", "-"),
            *notes[number : number + 1],
        )
    return table


def _side_by_side(allowed: Answer, refused: Answer) -> Table:
    grid = Table.grid(padding=(0, 4))
    answers = ((allowed, _SHOWN), (refused, _SHOWN + _SHOWN_REFUSED))
    grid.add_row(*(_head(answer, names) for answer, names in answers))
    return grid


def _head(answer: Answer, names: Sequence[str]) -> str:
    lines = (f"{name}: {answer.headers.get(name, '-')}" for name in names)
    return "\n".join((f"[bold]HTTP/1.1 {answer.status} {answer.reason}[/]", *lines))


def _processes(server: Server) -> str:
    count = len(server.workers)
    return f"{count} worker process{'es' if count > 1 else ''} ({', '.join(server.workers)})"


def _title(console: Console, number: int, text: str) -> None:
    console.print(f"[bold]{number}. {text}[/]")


def _rate(limit: Limit) -> str:
    return format_rate(limit.limit, limit.rule.shape[0]).replace("/", " per ")


def _passed(answers: Sequence[Answer]) -> int:
    return sum(answer.status == _OK for answer in answers)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
