"""The contract kit: what every store of Noria's must do, as tests for yours.

Subclass `LimiterContract`, say how to make a limiter, and run pytest; see `noria.testing.contract`.
`vectors` are the same promises as recorded histories in JSON, for mirrors in other languages.
Needs `hypothesis`.
"""

try:
    import hypothesis as _  # noqa: F401
except ImportError:
    raise ImportError("noria.testing needs hypothesis: pip install hypothesis") from None

from noria.testing.clock import Clock
from noria.testing.contract import LimiterContract
from noria.testing.driver import AnyLimiter
from noria.testing.model import Model

__all__ = ["AnyLimiter", "Clock", "LimiterContract", "Model"]
