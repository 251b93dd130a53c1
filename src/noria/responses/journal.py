"""What the operator is told: a line in the log for a refusal, and few lines for a flood.

A flood of refusals is when a limiter is at work, and must not fill the disk. Each limit may write a
number of lines a minute; its next line says how many were left out.
"""

from __future__ import annotations

import os
from hashlib import blake2b, sha256
from logging import WARNING, getLogger

from noria.responses.naming import policy_name, speaker
from noria.responses.whole import retry_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.model.decision import Decision

LINES = 10
PERIOD = 60.0

_logger = getLogger("noria")


class Journal:
    """Writes refusals to the logger `noria`, as `rate_limited`.

    `limit` is the name an answer gives it too, or `store_unavailable`. Keys are hashed, with
    `NORIA_SECRET` where it is set: then all processes write one key alike. Otherwise each process
    hashes with a secret of its own, since a plain hash of an address is soon undone.
    """

    def __init__(self, secret: str | None = None) -> None:
        secret = secret or os.environ.get("NORIA_SECRET")
        self._secret = sha256(secret.encode()).digest() if secret else os.urandom(32)
        self._budgets: dict[str, _Budget] = {}

    def refused(self, decision: Decision, key: str) -> None:
        """Write a line, or count it as suppressed. Time is the decision's."""
        if not _logger.isEnabledFor(WARNING):
            return
        outcome = speaker(decision)
        limit = decision.reason if outcome is None else policy_name(outcome)
        budget = self._budgets.setdefault(limit, _Budget())
        suppressed = budget.draw(decision.decided_at)
        if suppressed is None:
            return
        facts = {
            "limit": limit,
            "key": blake2b(key.encode(), digest_size=8, key=self._secret).hexdigest(),
            "retry_after": retry_seconds(decision.retry_after),
            "suppressed": suppressed,
        }
        # A limit's name may be any text, but a line stays a line.
        words = " ".join(f"{name}={value}" for name, value in facts.items())
        words = words.encode("unicode_escape").decode() if not words.isprintable() else words
        _logger.warning("rate_limited %s", words, extra=facts)


class _Budget:
    """The lines that one limit may still write."""

    __slots__ = ("left", "since", "suppressed")

    def __init__(self) -> None:
        self.since = float("-inf")
        self.left = 0
        self.suppressed = 0

    def draw(self, now: float) -> int | None:
        """How many were suppressed before this line; None where this one is too."""
        if not 0 <= now - self.since < PERIOD:
            self.since, self.left = now, LINES
        if not self.left:
            self.suppressed += 1
            return None
        self.left -= 1
        suppressed, self.suppressed = self.suppressed, 0
        return suppressed
