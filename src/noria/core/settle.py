"""Settle: what a store's evidence means, in the words and the seconds of a caller."""

from __future__ import annotations

from noria.algorithms.units import SECOND
from noria.core import charges
from noria.model.batch import Evidence, Part, Row
from noria.model.decision import Decision, Outcome, Settled
from noria.model.errors import NoriaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.algorithms.contract import State
    from noria.model.contract import Answer, Figures, Space, Store
    from noria.model.limit import Limit, Rule


class Ledger:
    """Where decisions come from: a store under a namespace. It reads the evidence of its own."""

    __slots__ = ("_store", "degraded", "namespace", "space")

    def __init__(
        self, store: Store, space: Space, namespace: str, degraded: str | None = None
    ) -> None:
        self._store = store
        self.space = space
        self.namespace = namespace
        self.degraded = degraded

    @property
    def secret(self) -> bytes:
        """What seals charges; it changes if the store had to begin anew."""
        return self._store.secret

    def settle(self, evidence: object) -> Settled:
        """See `Origin.settle`."""
        return _settled(as_evidence(evidence), self.degraded)

    def parts(self, evidence: object) -> list[Part]:
        """See `Origin.parts`."""
        return [_part(row) for row in as_evidence(evidence).rows if row.charged]

    def seal(self, parts: list[Part]) -> str | None:
        """See `Origin.seal`."""
        return charges.seal(self.secret, self.namespace, parts) if parts else None


def _part(row: Row) -> Part:
    """What it takes to give a charged row back; a state begins with the tick of its charge."""
    entry = row.entry
    rule = entry.rule
    return Part(entry.key, rule.id, rule.shape, row.state[0], entry.cost, row.birth, row.number)


def many(ledger: Ledger, evidence: Evidence) -> Decision:
    """The decision of a batch: allowed when no entry with a veto was refused."""
    _check(evidence)
    allowed = all(row.fits or not row.entry.veto for row in evidence.rows)
    chief = _chief(evidence, allowed=allowed)
    remaining = retry = None
    if chief is not None:
        remaining = chief.remaining
        if not allowed and chief.wait is not None:
            retry = chief.wait * chief.entry.rule.tick / SECOND
    return Decision(allowed, remaining, retry, ledger, evidence)


def as_evidence(evidence: object) -> Evidence:
    """The evidence a decision keeps: that of a batch, or for the commonest one the bare answer."""
    if isinstance(evidence, Evidence):
        return evidence
    answer: Answer = evidence  # type: ignore[assignment]
    return Evidence(answer[3], [Row.of(answer)])


def _check(evidence: Evidence) -> None:
    """Evidence that contradicts itself is a bug in a store: never a quiet decision."""
    for row in evidence.rows:
        if row.fits != (row.wait == 0) or row.remaining < 0 or (row.charged and not row.fits):
            raise NoriaError(
                f"the store contradicts itself about {row.entry.rule.limit}: fits={row.fits}, "
                f"charged={row.charged}, remaining={row.remaining}, wait={row.wait}"
            )


def _chief(evidence: Evidence, *, allowed: bool) -> Row | None:
    """The row that speaks for the decision; None where all limits are shadows."""

    def weight(row: Row) -> tuple[float, float]:
        tick = row.entry.rule.tick
        reset = _figures(row, evidence.now)[0] * tick
        if allowed:
            return -row.remaining, reset
        return float("inf") if row.wait is None else row.wait * tick, reset

    rows = [
        row
        for row in evidence.rows
        if not row.entry.rule.limit.shadow and (allowed or not row.fits)
    ]
    return rows[0] if len(rows) == 1 else max(rows, key=weight, default=None)


def figures(rule: Rule, state: State, now: int, remaining: int) -> Figures:
    """In ticks: until no charge weighs any more, to the window's end, until `remaining` grows.

    Remaining grows when one unit more than now would pass, so the kernel's wait tells when.
    """
    t = now // rule.tick
    reset, window_end = rule.kernel.rest(rule.numbers, state, t)
    grows = None
    if remaining < rule.numbers[2]:
        grows = rule.step(rule.numbers, state, t, remaining + 1)[4]
    return reset, window_end, grows or 0


def _figures(row: Row, now: int) -> Figures:
    return row.figures or figures(row.entry.rule, row.state, now, row.remaining)


def _settled(evidence: Evidence, degraded: str | None) -> Settled:
    allowed = all(row.fits or not row.entry.veto for row in evidence.rows)
    chief = _chief(evidence, allowed=allowed)
    outcomes = tuple(_outcome(row, evidence.now) for row in evidence.rows)
    settled = Settled(
        reason="ok" if allowed else "limited",
        decided_at=evidence.now / SECOND,
        outcomes=outcomes,
        degraded=degraded,
        evidence=evidence,
    )
    if chief is not None:
        outcome = outcomes[evidence.rows.index(chief)]
        settled.limit = outcome.limit
        settled.reset_after = outcome.reset_after
        if not allowed and chief.wait is None:
            settled.reason = "never"
    return settled


def _outcome(row: Row, now: int) -> Outcome:
    rule = row.entry.rule
    limit: Limit = rule.limit
    tick = rule.tick
    reset, window_end, grows = _figures(row, now)
    reason = "ok" if row.fits else "never" if row.wait is None else "limited"
    return Outcome(
        name=limit.name,
        algorithm=limit.algorithm,
        limit=limit.limit,
        period=limit.period,
        burst=limit.burst,
        remaining=row.remaining,
        reset_after=reset * tick / SECOND,
        grows_after=grows * tick / SECOND,
        window_ends_after=None if window_end is None else window_end * tick / SECOND,
        retry_after=None if row.fits or row.wait is None else row.wait * tick / SECOND,
        allowed=row.fits,
        reason="overflow" if row.overflow else reason,
        shadow=limit.shadow,
    )
