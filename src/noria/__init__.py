"""Noria: a rate limiter that is cheap, exact and shared by all your processes.

>>> from noria import Limiter
>>> with Limiter("memory://") as limiter:
...     [bool(limiter.consume("user:42", "2/minute")) for call in range(3)]
[True, True, False]
"""

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
