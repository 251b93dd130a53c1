"""What is decided in the store's place while it is down: let pass, refuse, or decide here."""

from __future__ import annotations

import time

from noria.core import settle
from noria.model.batch import Batch, Entry
from noria.model.decision import Decision, Settled
from noria.model.limit import Limit
from noria.stores import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.model.contract import Clock
    from noria.model.limit import Rule

RETRY_AFTER = 1.0
"""Seconds after which a call that was refused for an outage may be tried again."""


class Outage:
    """Decides by a failure policy: "open", "closed", or "local" with this process's share.

    Local decisions are exact within the process, so that P processes admit at most P times the
    share of each limit.
    """

    def __init__(self, namespace: str, clock: Clock | None, share: float) -> None:
        self._namespace = namespace
        self._clock = clock
        self._share = share
        self._ledger: settle.Ledger | None = None

    def decide(self, batch: Batch, failure: str) -> Decision:
        """The decision about a batch that the store did not answer."""
        if failure == "local":
            return self._decide_here(batch)
        passes = failure == "open"
        settled = Settled(reason="store_unavailable", decided_at=time.time(), degraded=failure)
        retry_after = None if passes else RETRY_AFTER
        return Decision.known(settled, allowed=passes, remaining=None, retry_after=retry_after)

    def made(self, decision: Decision) -> bool:
        """Whether a decision was made here, and its charge is to be given back here."""
        return self._ledger is not None and decision._origin is self._ledger

    def refund(self, decision: Decision) -> bool:
        """Give such a charge back."""
        return self._ledger is not None and self._ledger.space.refund(decision._parts())

    def _decide_here(self, batch: Batch) -> Decision:
        ledger = self._ledger
        if ledger is None:
            store = open_store("memory://")
            space = store.space(self._namespace, self._clock)
            ledger = self._ledger = settle.Ledger(store, space, self._namespace, "local")
        entries = [
            Entry(entry.key, self._shared(entry.rule), entry.cost, veto=entry.veto)
            for entry in batch.entries
        ]
        return settle.many(ledger, ledger.space.apply(Batch(entries, charge=batch.charge)))

    def _shared(self, rule: Rule) -> Rule:
        """The rule for this process's share of its limit; at least one unit of what is above 0."""
        if self._share == 1.0:
            return rule
        limit = rule.limit
        part = Limit(
            max(int(limit.limit * self._share), 1) if limit.limit else 0,
            limit.period,
            algorithm=limit.algorithm,
            burst=max(int(limit.burst * self._share), 1) if limit.burst else None,
            name=limit.name,
            unit=limit.unit,
            shadow=limit.shadow,
        )
        return part.rule
