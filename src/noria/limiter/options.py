"""What limiters are told when they are made, checked."""

from __future__ import annotations

from noria.core.plan import checked_key
from noria.model.errors import ConfigError, UsageError
from noria.model.rate import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FAILURES = ("open", "closed", "local")
"""What can be decided while the store is down."""


def checked_failure(value: object, error: type[ConfigError | UsageError] = ConfigError) -> str:
    """One of `FAILURES`."""
    if value not in FAILURES:
        raise error(f'on_store_failure {shown(value)}: expected "open", "closed" or "local"')
    return str(value)


def checked_namespace(value: object) -> str:
    """A namespace is such text as a key may be."""
    try:
        return checked_key(value)
    except UsageError:
        raise ConfigError(
            f"namespace {shown(value)}: expected text that is not empty and has a UTF-8 form"
        ) from None


def checked_callable(name: str, value: object) -> None:
    """None, or something that can be called."""
    if value is not None and not callable(value):
        raise ConfigError(f"{name} {shown(value)}: expected a callable")


def checked_clock(clock: Any) -> None:  # noqa: ANN401 - what callers give
    """None, or a callable that returns an int."""
    checked_callable("clock", clock)
    if clock is not None and type(now := clock()) is not int:
        raise ConfigError(
            f"clock {shown(clock)} returned {shown(now)}: expected an int, microseconds since the "
            "Unix epoch"
        )


def checked_number(
    name: str,
    value: Any,  # noqa: ANN401 - what callers give
    *,
    most: float,
    zero: bool = False,
    error: type[ConfigError | UsageError] = ConfigError,
) -> float:
    """A number above 0, or with `zero` from 0, up to `most`."""
    if type(value) in {int, float} and (value > 0 or (zero and value == 0)) and value <= most:
        return float(value)
    floor = "from 0" if zero else "above 0"
    raise error(f"{name} {shown(value)}: expected a number {floor} up to {most:g}")
