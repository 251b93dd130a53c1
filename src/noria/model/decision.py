"""A decision: may the call pass, and everything a caller could be told about it.

A decision keeps the store's evidence and draws further conclusions when they are asked for, since
most callers read `allowed` alone. Times are seconds here, floats.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from noria.model.batch import Part
    from noria.model.contract import Origin


class Outcome:
    """What one limit says.

    `limit` is N, `period` its period and `burst` a bucket's burst, else None. `remaining` units are
    left; that number grows in `grows_after`; after `reset_after` no charge weighs any more;
    `window_ends_after` is None without windows. `retry_after`: when the same cost would pass, None
    when it does or never will. `reason`: "ok", "limited", "never", or "overflow" where a full store
    decided on a record that several keys share. `shadow`: it counts and does not deny.
    """

    __slots__ = (
        "algorithm",
        "allowed",
        "burst",
        "grows_after",
        "limit",
        "name",
        "period",
        "reason",
        "remaining",
        "reset_after",
        "retry_after",
        "shadow",
        "window_ends_after",
    )

    def __init__(  # noqa: PLR0913
        self,
        *,
        name: str | None,
        algorithm: str,
        limit: int,
        period: float,
        burst: int | None,
        remaining: int,
        reset_after: float,
        grows_after: float,
        window_ends_after: float | None,
        retry_after: float | None,
        allowed: bool,
        reason: str,
        shadow: bool,
    ) -> None:
        self.name = name
        self.algorithm = algorithm
        self.limit = limit
        self.period = period
        self.burst = burst
        self.remaining = remaining
        self.reset_after = reset_after
        self.grows_after = grows_after
        self.window_ends_after = window_ends_after
        self.retry_after = retry_after
        self.allowed = allowed
        self.reason = reason
        self.shadow = shadow

    def as_dict(self) -> dict[str, object]:
        """The outcome as a mapping of its attributes, for JSON."""
        return {name: getattr(self, name) for name in _OUTCOME_ORDER}

    def __repr__(self) -> str:
        return _shown(self, _OUTCOME_ORDER)


_OUTCOME_ORDER = (
    "name",
    "algorithm",
    "limit",
    "period",
    "burst",
    "remaining",
    "reset_after",
    "grows_after",
    "window_ends_after",
    "retry_after",
    "allowed",
    "reason",
    "shadow",
)


_SETTLED = (
    "reason",
    "decided_at",
    "limit",
    "reset_after",
    "outcomes",
    "policy",
    "degraded",
    "delay",
    "charge",
)


class Settled:
    """The conclusions of a decision that are drawn on demand."""

    __slots__ = (
        "charge",
        "decided_at",
        "degraded",
        "delay",
        "evidence",
        "limit",
        "outcomes",
        "policy",
        "reason",
        "reset_after",
    )

    def __init__(  # noqa: PLR0913
        self,
        *,
        reason: str,
        decided_at: float,
        limit: int | None = None,
        reset_after: float | None = None,
        outcomes: tuple[Outcome, ...] = (),
        policy: str | None = None,
        degraded: str | None = None,
        delay: float = 0.0,
        charge: str | None = None,
        evidence: object = None,
    ) -> None:
        self.limit = limit
        self.reset_after = reset_after
        self.outcomes = outcomes
        self.policy = policy
        self.decided_at = decided_at
        self.degraded = degraded
        self.reason = reason
        self.delay = delay
        self.charge = charge
        self.evidence = evidence  # what they were drawn from, where the store is at hand


class Decision:
    """The answer to a call; true when it may pass.

    `allowed`; `remaining` units are left; `retry_after` is the time until the same call would pass,
    None when it does or never will. These and `limit` and `reset_after` are those of one outcome:
    the longest to wait for when denied (never being the longest), the one with the least remaining
    when allowed, a tie going to the longer reset; shadow limits are left out. All are None where
    the store did not answer, but `retry_after`, 1.0 when the call was refused for that.
    """

    __slots__ = ("_evidence", "_origin", "allowed", "remaining", "retry_after")

    def __init__(
        self,
        allowed: bool,  # noqa: FBT001
        remaining: int | None,
        retry_after: float | None,
        origin: Origin | None,
        evidence: object,
    ) -> None:
        self.allowed = allowed
        self.remaining = remaining
        self.retry_after = retry_after
        self._origin = origin
        self._evidence = evidence  # or, once they were asked for, the conclusions drawn from it

    @classmethod
    def known(
        cls, settled: Settled, *, allowed: bool, remaining: int | None, retry_after: float | None
    ) -> Decision:
        """A decision whose conclusions are drawn already, such as one made without a store."""
        return cls(allowed, remaining, retry_after, None, settled)

    def __bool__(self) -> bool:
        return self.allowed

    def _settled(self) -> Settled:
        """The conclusions, drawn now if they were not before."""
        settled = self._evidence
        if not isinstance(settled, Settled):
            assert self._origin is not None  # noqa: S101
            self._evidence = settled = self._origin.settle(settled)
        return settled

    def _parts(self) -> list[Part]:
        """What was charged, by a decision with an `origin`."""
        evidence = self._evidence
        if isinstance(evidence, Settled):
            evidence = evidence.evidence
        return [] if self._origin is None else self._origin.parts(evidence)

    @property
    def limit(self) -> int | None:
        """N of the limit that speaks for the decision."""
        return self._settled().limit

    @property
    def reset_after(self) -> float | None:
        """Seconds until no charge of that limit weighs any more."""
        return self._settled().reset_after

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What each limit says, in the order given, each limit once."""
        return self._settled().outcomes

    @property
    def policy(self) -> str | None:
        """The name of the policy that decided; None for limits given in code."""
        return self._settled().policy

    @property
    def decided_at(self) -> float:
        """When, in Unix seconds by the store's clock."""
        return self._settled().decided_at

    @property
    def degraded(self) -> str | None:
        """None, or how it was decided while the store was down: "open", "closed", "local"."""
        return self._settled().degraded

    @property
    def reason(self) -> str:
        """One of "ok", "limited", "never", "store_unavailable", "denied" or "exempt"."""
        return self._settled().reason

    @property
    def delay(self) -> float:
        """Seconds the call was, or should be, held back before it goes on."""
        return self._settled().delay

    @property
    def charge(self) -> str | None:
        """An opaque id to refund this decision by, in any process; None where nothing was charged.

        It cannot be made up: it is sealed with the store's secret.
        """
        return self._settled().charge if self._origin is None else self._origin.seal(self._parts())

    def as_dict(self) -> dict[str, object]:
        """The decision as JSON knows it, in the service, the logs and the replay."""
        return {
            "allowed": self.allowed,
            "limit": self.limit,
            "remaining": self.remaining,
            "reset_after": self.reset_after,
            "retry_after": self.retry_after,
            "outcomes": [outcome.as_dict() for outcome in self.outcomes],
            "policy": self.policy,
            "decided_at": self.decided_at,
            "degraded": self.degraded,
            "reason": self.reason,
            "charge": self.charge,
            "delay": self.delay,
        }

    def __reduce__(self) -> tuple[object, ...]:
        # A copy elsewhere has no store to ask: it takes conclusions and sealed charge along.
        figures = {name: getattr(self, name) for name in _SETTLED}
        outcomes = [outcome.as_dict() for outcome in self.outcomes]
        return _rebuilt, (
            self.allowed,
            self.remaining,
            self.retry_after,
            figures | {"outcomes": outcomes},
        )

    def __repr__(self) -> str:
        return _shown(
            self, ("allowed", "limit", "remaining", "reset_after", "retry_after", "reason")
        )


def _rebuilt(
    allowed: bool,  # noqa: FBT001
    remaining: int | None,
    retry_after: float | None,
    figures: dict[str, Any],
) -> Decision:
    figures["outcomes"] = tuple(Outcome(**outcome) for outcome in figures["outcomes"])
    settled = Settled(**figures)
    return Decision.known(settled, allowed=allowed, remaining=remaining, retry_after=retry_after)


def _shown(value: object, names: tuple[str, ...]) -> str:
    words = ", ".join(f"{name}={getattr(value, name)!r}" for name in names)
    return f"{type(value).__name__}({words})"
