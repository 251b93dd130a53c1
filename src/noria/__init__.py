"""Noria: a rate limiter that is cheap, exact and shared by all your processes.

>>> from noria import Limiter
>>> with Limiter("memory://") as limiter:
...     [bool(limiter.consume("user:42", "2/minute")) for call in range(3)]
[True, True, False]

`import noria` loads nothing; a name is loaded when it is first used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.limiter import AsyncLimiter, Limiter
    from noria.model.decision import Decision, Outcome
    from noria.model.errors import (
        ConfigError,
        NoriaError,
        RateLimitExceeded,
        StoreUnavailable,
        UsageError,
    )
    from noria.model.limit import Limit
    from noria.stores import open_store

__all__ = [
    "AsyncLimiter",
    "ConfigError",
    "Decision",
    "Limit",
    "Limiter",
    "NoriaError",
    "Outcome",
    "RateLimitExceeded",
    "StoreUnavailable",
    "UsageError",
    "open_store",
]
__version__ = "0.1.0"

_HOMES = {
    "AsyncLimiter": "limiter",
    "ConfigError": "model.errors",
    "Decision": "model.decision",
    "Limit": "model.limit",
    "Limiter": "limiter",
    "NoriaError": "model.errors",
    "Outcome": "model.decision",
    "RateLimitExceeded": "model.errors",
    "StoreUnavailable": "model.errors",
    "UsageError": "model.errors",
    "open_store": "stores",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'noria' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"noria.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
