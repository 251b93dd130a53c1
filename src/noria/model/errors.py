"""The errors a caller can meet: one small tree under `NoriaError`.

Three kinds are kept apart, because they call for three answers: `ConfigError` and `UsageError` are
mistakes in a program or a file and are always raised; `StoreUnavailable` is an outage, for which
`consume` follows the policy instead of raising; `RateLimitExceeded` is an answer, not a fault.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.model.decision import Decision


class NoriaError(Exception):
    """Anything Noria raises on purpose."""


class ConfigError(NoriaError, ValueError):
    """A limit, a URL, an option or a file is wrong; the text names it and what was expected."""


class UsageError(NoriaError, ValueError):
    """A call is wrong: its key, its cost or its limits; raised before any input or output."""


class StoreUnavailable(NoriaError):
    """The store did not answer. `consume` never raises this: it follows `on_store_failure`."""


class RateLimitExceeded(NoriaError):
    """A decorated call, or a wait, was refused; `decision` says by which limit and for how long."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        retry = self.decision.retry_after
        wait = "it would never pass" if retry is None else f"retry after {retry:g} s"
        return f"rate limit exceeded ({self.decision.reason}): {wait}"
