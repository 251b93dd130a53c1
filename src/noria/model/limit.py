"""A limit: one rule on one counter, in the user's words, and compiled for the kernels.

`Limit` checks everything once, when it is made; a limit that exists is right. `Rule` is what the
hot path reads of it: the kernel's step and its integers.
"""

from __future__ import annotations

from noria.algorithms import ALIASES, KERNELS
from noria.algorithms.units import SECOND, tick_for
from noria.model.errors import ConfigError, UsageError
from noria.model.rate import LONGEST_PERIOD, MOST_UNITS, format_rate, parse_rate, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any, NoReturn

    from noria.algorithms import Kernel
    from noria.algorithms.contract import Numbers, Shape

MOST_LOGGED = 100_000
"""The largest N of the sliding-window log, which keeps an entry for each call."""

LONGEST_NAME = 200
_MOST_SECONDS = 1e12  # far above any period; what is larger may be infinite
_PERIODS = "a period of a microsecond to ten years, in seconds or as a timedelta"


class Rule:
    """A limit as a store runs it.

    `id` tells its states apart from those of other limits on the same key; it begins with the
    kernel's name and a bar. `numbers` are what the kernel takes; `tick` is in microseconds; `shape`
    is (period, tick), which a state remembers.
    """

    __slots__ = ("grows", "id", "kernel", "limit", "numbers", "shape", "step", "tick")

    def __init__(
        self, identity: str, limit: Limit, kernel: Kernel, numbers: Numbers, shape: Shape
    ) -> None:
        self.id = identity
        self.limit = limit
        self.kernel = kernel
        self.step = kernel.step
        self.grows = kernel.grows
        self.numbers = numbers
        self.shape = shape
        self.tick = shape[1]


class Limit:
    """N units per period, by one algorithm.

    `Limit("100/minute")`, or `Limit(100, per=60)` with `per` in seconds or a timedelta. N is 0 to
    10**9 (100,000 for the log) and a period up to ten years; 0 refuses everything. `burst`, for a
    token bucket only, is the most that passes at once (default N). `name` stands for the limit's
    state, so that N or burst can change and keep the count; without one, all its numbers do. A
    `shadow` limit counts and never denies. `unit` says what is counted.

    Limits compare and hash by value. Attributes: `limit` (N), `period` (seconds), `algorithm`,
    `burst` (None unless a bucket), `name`, `unit`, `shadow`, `lease`.

    Raises `ConfigError` naming the value and what was expected.
    """

    __slots__ = (
        "_hash",
        "algorithm",
        "burst",
        "lease",
        "limit",
        "name",
        "period",
        "quick",
        "rule",
        "shadow",
        "unit",
    )

    limit: int
    period: float
    algorithm: str
    burst: int | None
    name: str | None
    unit: str
    shadow: bool
    lease: int | str | None
    rule: Rule
    quick: Rule | None
    _hash: int

    def __init__(  # noqa: PLR0913
        self,
        rate: str | int,
        /,
        per: float | timedelta | None = None,
        *,
        algorithm: str = "sliding-window",
        burst: int | None = None,
        name: str | None = None,
        unit: str = "requests",
        shadow: bool = False,
        lease: int | str | None = None,
    ) -> None:
        count, period = _rate(rate, per)
        kernel = KERNELS.get(ALIASES.get(algorithm, algorithm)) if type(algorithm) is str else None
        if kernel is None:
            known = ", ".join((*KERNELS, *ALIASES))
            raise ConfigError(f"algorithm {shown(algorithm)} is not known: expected one of {known}")
        if kernel.name == "sliding-window-log" and count > MOST_LOGGED:
            raise ConfigError(
                f"rate {shown(rate)}: sliding-window-log keeps an entry for each call and takes N "
                f"up to {MOST_LOGGED}; choose sliding-window for more"
            )
        capacity = _capacity(count, burst, kernel.name)
        for what, value in (("name", name), ("unit", unit)):
            if not (_is_name(value) or (what == "name" and value is None)):
                raise ConfigError(
                    f"{what} {shown(value)}: expected text of 1 to {LONGEST_NAME} characters, "
                    "without lone surrogates"
                )
        if type(shadow) is not bool:
            raise ConfigError(f"shadow {shown(shadow)}: expected True or False")
        if lease is not None:
            raise ConfigError(f"lease {shown(lease)}: leases are not in this version")
        tick = tick_for(max(count, capacity, 1), period)
        if tick is None:
            raise ConfigError(
                f"rate {shown(rate)}: a period of {period} us cannot be divided finely enough for "
                "so large an N; choose a rounder period"
            )
        fill = object.__setattr__
        fill(self, "limit", count)
        fill(self, "period", period / SECOND)
        fill(self, "algorithm", kernel.name)
        fill(self, "burst", capacity if kernel.name == "token-bucket" else None)
        fill(self, "name", name)
        fill(self, "unit", unit)
        fill(self, "shadow", shadow)
        fill(self, "lease", lease)
        # Type and length of each part are fixed by its place, so two limits never share an id.
        kind = f"{kernel.name}|{int(shadow)}|{len(unit)}:{unit}|"
        numbers = f"#{count}|{period}|{capacity}" if name is None else f"={name}"
        most = capacity if count else 0
        rule = Rule(kind + numbers, self, kernel, (count, period // tick, most), (period, tick))
        fill(self, "rule", rule)
        # The rule where it alone decides: a shadow denies nothing, whatever it says.
        fill(self, "quick", None if shadow else rule)
        fill(self, "_hash", hash(self._value()))

    def _value(self) -> tuple[object, ...]:
        return (self.rule.id, self.limit, self.rule.shape, self.burst, self.lease)

    def __eq__(self, other: object) -> bool:
        return self._value() == other._value() if isinstance(other, Limit) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(f"a Limit cannot be changed: {attribute} = {shown(value)}")

    def __delattr__(self, attribute: str) -> NoReturn:
        raise AttributeError(f"a Limit cannot be changed: del {attribute}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (
            self.limit,
            self.rule.shape[0],
            self.algorithm,
            self.burst,
            self.name,
            self.unit,
            self.shadow,
        )

    def __repr__(self) -> str:
        words = [repr(format_rate(self.limit, self.rule.shape[0]))]
        if self.algorithm != "sliding-window":
            words.append(f"algorithm={self.algorithm!r}")
        if self.burst not in (None, self.limit):
            words.append(f"burst={self.burst}")
        if self.name is not None:
            words.append(f"name={self.name!r}")
        if self.unit != "requests":
            words.append(f"unit={self.unit!r}")
        if self.shadow:
            words.append("shadow=True")
        return f"Limit({', '.join(words)})"


_texts: dict[str, Limit] = {}


def as_limit(value: Limit | str | None) -> Limit:
    """`value` where it is a limit, the limit a rate text stands for; else a `UsageError`."""
    if isinstance(value, str):
        value = str(value)
        known = _texts.get(value)
        if known is None:
            known = Limit(value)
            if len(_texts) >= 1024:  # noqa: PLR2004
                _texts.clear()
            _texts[value] = known
        return known
    if isinstance(value, Limit):
        return value
    if value is None:
        raise UsageError('no limit given: expected at least one, such as Limit("100/minute")')
    raise UsageError(f'limit {shown(value)}: expected a Limit or rate text such as "100/minute"')


def _rate(rate: object, per: object) -> tuple[int, int]:
    """(N, period in microseconds), both within bounds."""
    if isinstance(rate, str):
        rate = str(rate)
        if per is not None:
            raise ConfigError(
                f"rate {shown(rate)} has a period already: per {shown(per)} is too much"
            )
        count, period = parse_rate(rate)
    elif type(rate) is int:
        if per is None:
            raise ConfigError(f"rate {rate}: give the period too, as in Limit({rate}, per=60)")
        count, period = rate, _microseconds(per)
    else:
        raise ConfigError(f"rate {shown(rate)}: expected rate text or a whole number")
    if not 0 <= count <= MOST_UNITS:
        raise ConfigError(f"rate {shown(rate)}: N is 0 to {MOST_UNITS}")
    if not 1 <= period <= LONGEST_PERIOD:
        given = f"rate {shown(rate)}" if per is None else f"per {shown(per)}"
        raise ConfigError(f"{given}: expected {_PERIODS}")
    return count, period


def _microseconds(per: Any) -> int:  # noqa: ANN401 - what callers give
    seconds = getattr(per, "total_seconds", None)
    value = seconds() if seconds is not None else per
    if type(value) not in {int, float} or not 0 < value <= _MOST_SECONDS:
        raise ConfigError(f"per {shown(per)}: expected {_PERIODS}")
    microseconds: int = round(value * SECOND)
    return microseconds


def _capacity(count: int, burst: object, algorithm: str) -> int:
    if burst is None:
        return count
    if algorithm != "token-bucket":
        raise ConfigError(f"burst {shown(burst)}: only a token-bucket has one, not {algorithm}")
    if type(burst) is not int or not 1 <= burst <= MOST_UNITS:
        raise ConfigError(f"burst {shown(burst)}: expected a whole number from 1 to {MOST_UNITS}")
    return burst


def _is_name(value: object) -> bool:
    return type(value) is str and 0 < len(value) <= LONGEST_NAME and _encodes(value)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rebuilt(  # noqa: PLR0913
    count: int,
    period: int,
    algorithm: str,
    burst: int | None,
    name: str | None,
    unit: str,
    shadow: bool,  # noqa: FBT001
) -> Limit:
    """A limit from its pickled parts; the period in microseconds."""
    return Limit(
        count,
        period / SECOND,
        algorithm=algorithm,
        burst=burst or None,
        name=name,
        unit=unit,
        shadow=shadow,
    )
