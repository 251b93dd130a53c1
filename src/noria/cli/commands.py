"""The commands and their options."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec

import click
from rich.console import Console
from rich.table import Table

import noria
from noria.model.errors import ConfigError, NoriaError
from noria.model.limit import Limit
from noria.model.rate import format_rate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from noria.model.decision import Decision, Outcome

_LATER = ("serve", "check", "explain", "replay", "profile", "suggest", "import", "schema", "bench")


def run() -> None:
    """Run the command that the arguments name; mistakes are one line, and exit code 2."""
    try:
        commands(prog_name="noria")
    except NoriaError as error:
        click.echo(f"noria: {error}", err=True)
        sys.exit(2)


class _Commands(click.Group):
    """Commands of a later version are named as such, not denied."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _LATER:
            raise ConfigError(f"{args[0]}: not in this version")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, epilog=f"In a later version: {', '.join(_LATER)}.")
@click.version_option(noria.__version__, message="%(prog)s %(version)s")
def commands() -> None:
    """Rate limits, exact over all processes of a machine."""


@commands.command()
@click.option("--once", is_flag=True, help="End after the requests; exit code 1 if one went wrong.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Where to listen; the next free port where it is taken, any for 0.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 16),
    default=2,
    show_default=True,
    help="Processes that serve the API.",
)
@click.option("--store", metavar="URL", help="A store to use in place of a temporary one.")
def demo(port: int, workers: int, store: str | None, *, once: bool) -> None:
    """Start a sample API, run into its limits, and show what happens.

    The API is served by several worker processes that share one store and nothing else. It stays up
    until Ctrl-C, so that you can try it.
    """
    if not (find_spec("granian") and find_spec("lmdb")):
        raise ConfigError('demo needs the extra "service": pip install "noria[service]"')
    from noria.cli.demo import DemoError, play

    try:
        play(port=port, workers=workers, store=store, once=once)
    except DemoError as error:
        click.echo(f"noria: demo: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        # The lasting demo is ended this way; --once has been cut short.
        sys.exit(130 if once else 0)


def _on_a_store(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments that `peek` and `reset` share."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        click.option(
            "--namespace", default="noria", show_default=True, help="As the limiter has it."
        ),
        click.option("--store", metavar="URL", help="Default: NORIA_STORE_URL, else shared://"),
        click.option("--name", help="The limit's name, where it has one."),
        click.option("--burst", type=int, help="The burst of a token-bucket."),
        click.option("--algorithm", default="sliding-window", show_default=True),
        click.option("--limit", "rate", metavar="RATE", help="Rate text, such as 100/minute."),
        click.argument("key"),
    ):
        command = option(command)
    return command


@commands.command()
@_on_a_store
def peek(key: str, *, rate: str | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - click's
    """Show what is left of a limit for KEY, charging nothing.

    The limit is given as in the code that charges it: limits have their own counts.
    """
    if rate is None:
        raise click.UsageError("peek needs --limit RATE, such as --limit 100/minute")
    limit = _limit(rate, options)
    with _limiter(options) as limiter:
        decision = limiter.peek(key, limit)
        decision.outcomes  # noqa: B018 - read while the store is open
    if as_json:
        click.echo(json.dumps(decision.as_dict(), ensure_ascii=False))
    else:
        _show(key, decision)


@commands.command()
@_on_a_store
def reset(key: str, *, rate: str | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - click's
    """Forget what was charged to KEY: to one limit, or without --limit to all."""
    limits = () if rate is None else (_limit(rate, options),)
    with _limiter(options) as limiter:
        gone = limiter.reset(key, *limits)
    if as_json:
        click.echo(json.dumps({"reset": gone}))
    else:
        click.echo(f"{gone} {'count' if gone == 1 else 'counts'} of {key!r} forgotten")


def _limit(rate: str, options: dict[str, Any]) -> Limit:
    return Limit(rate, algorithm=options["algorithm"], burst=options["burst"], name=options["name"])


def _limiter(options: dict[str, Any]) -> noria.Limiter:
    url = options["store"] or os.environ.get("NORIA_STORE_URL") or "shared://"
    if url.startswith("memory:"):
        raise ConfigError(
            f"store {url}: another process's memory cannot be seen; expected shared://"
        )
    return noria.Limiter(url, namespace=options["namespace"])


def _show(key: str, decision: Decision) -> None:
    table = Table(title=f"{key!r} now", title_justify="left")
    for heading in ("rate", "algorithm", "remaining", "one more in", "all back in", "a call"):
        table.add_column(heading)
    for outcome in decision.outcomes:
        table.add_row(*_row(outcome))
    Console(highlight=False, markup=False).print(table)


def _row(outcome: Outcome) -> list[str]:
    burst = "" if outcome.burst in (None, outcome.limit) else f", burst {outcome.burst}"
    passes = "passes" if outcome.allowed else "never passes"
    return [
        format_rate(outcome.limit, round(outcome.period * 1_000_000)) + burst,
        outcome.algorithm,
        str(outcome.remaining),
        f"{outcome.grows_after:.3f} s",
        f"{outcome.reset_after:.3f} s",
        passes if outcome.retry_after is None else f"passes in {outcome.retry_after:.3f} s",
    ]
