"""What goes to a store and what comes back: a batch of entries, and evidence about each.

A store applies a batch in one atomic step. It answers with facts, the moment by its clock and for
each entry whether it fitted, whether it was charged and the state that stands now; `core.settle`
draws the conclusions from them, once for all stores.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.algorithms.contract import Shape, State
    from noria.model.contract import Answer, Figures
    from noria.model.limit import Rule


class Entry:
    """`cost` units for one limit on one key; with a `veto`, its refusal refuses the whole batch."""

    __slots__ = ("cost", "key", "rule", "veto")

    def __init__(self, key: str, rule: Rule, cost: int, *, veto: bool) -> None:
        self.key = key
        self.rule = rule
        self.cost = cost
        self.veto = veto


class Batch:
    """Entries that are decided together; no (key, limit) occurs twice.

    Without `charge` the store only looks.
    """

    __slots__ = ("charge", "entries")

    def __init__(self, entries: list[Entry], *, charge: bool) -> None:
        self.entries = entries
        self.charge = charge


class Row:
    """What became of one entry.

    `fits`: it would pass by itself. `charged`: it passed and was charged. `remaining`: units left
    now; `wait`: ticks until its cost would pass, 0 where it fits, None for never. `state`: what
    stands now. `figures`: those of `core.settle`, where the store had to work them out itself.
    `birth` and `number` name the charge within its state. `overflow`: a full store decided it on a
    record that several keys share.
    """

    __slots__ = (
        "birth",
        "charged",
        "entry",
        "figures",
        "fits",
        "number",
        "overflow",
        "remaining",
        "state",
        "wait",
    )

    def __init__(  # noqa: PLR0913
        self,
        entry: Entry,
        *,
        fits: bool,
        charged: bool,
        remaining: int,
        wait: int | None,
        state: State,
        figures: Figures | None = None,
        birth: int = 0,
        number: int = 0,
        overflow: bool = False,
    ) -> None:
        self.entry = entry
        self.fits = fits
        self.charged = charged
        self.remaining = remaining
        self.wait = wait
        self.state = state
        self.figures = figures
        self.birth = birth
        self.number = number
        self.overflow = overflow

    def answer(self, now: int) -> Answer:
        """The row as `Space.decide` returns it."""
        entry = self.entry
        head = self.fits, self.remaining, self.wait, now, entry.key, entry.rule, entry.cost
        return *head, self.state, self.birth, self.number, self.figures, self.overflow

    @classmethod
    def of(cls, answer: Answer) -> Row:
        """The row of what `Space.decide` returned."""
        fits, remaining, wait, _, key, rule, cost, state, birth, number, figures, overflow = answer
        return cls(
            Entry(key, rule, cost, veto=not rule.limit.shadow),
            fits=fits,
            charged=fits and cost > 0,
            remaining=remaining,
            wait=wait,
            state=state,
            figures=figures,
            birth=birth,
            number=number,
            overflow=overflow,
        )


class Evidence:
    """A store's answer to a batch: `now` in microseconds by its clock, and a row for each entry."""

    __slots__ = ("now", "rows")

    def __init__(self, now: int, rows: list[Row]) -> None:
        self.now = now
        self.rows = rows


class Slot:
    """One limit's state on one key, as the stores of this process hold or rebuild it.

    `shape` is the (period, tick) the state was made with. From `expires`, in microseconds, the slot
    equals no slot. `birth` is unique in its store and `charges` counts the charges since: together
    they name a charge. `refunds` names those that were given back: all up to the first number, and
    those that follow.
    """

    __slots__ = ("birth", "charges", "expires", "refunds", "shape", "state")

    def __init__(self, shape: Shape, birth: int) -> None:
        self.state: State = None
        self.shape = shape
        self.expires = 0
        self.birth = birth
        self.charges = 0
        self.refunds: tuple[int, ...] = ()


class Part:
    """One limit's share of a charge: all that is needed to give it back, wherever that is done.

    `at` is the tick it was charged at, in ticks of `shape`.
    """

    __slots__ = ("at", "birth", "cost", "key", "number", "rule_id", "shape")

    def __init__(  # noqa: PLR0913
        self, key: str, rule_id: str, shape: Shape, at: int, cost: int, birth: int, number: int
    ) -> None:
        self.key = key
        self.rule_id = rule_id
        self.shape = shape
        self.at = at
        self.cost = cost
        self.birth = birth
        self.number = number
