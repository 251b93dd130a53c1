"""The transition: all of a batch or none, once for every store.

An entry is charged if it fits and no entry with a veto was refused. That one rule carries three
things: limits consumed together (each has a veto), shadow limits (no veto: charged when the real
ones pass and they fit) and descriptors that are decided one by one (nobody has a veto).
"""

from __future__ import annotations

from noria.algorithms import KERNELS
from noria.model.batch import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from noria.algorithms.contract import State, Step
    from noria.model.batch import Batch, Entry, Part, Slot
    from noria.model.limit import Rule

MOST_REFUNDS = 64
"""Refunds of one state that are told apart; see `give_back`."""


class Move:
    """What is to become of one entry: its row, and the state to keep where `kept` says so.

    A state to keep without a charge is one that a clock fault has moved to now.
    """

    __slots__ = ("expires", "kept", "row")

    def __init__(self, row: Row, expires: int, *, kept: bool) -> None:
        self.row = row
        self.expires = expires
        self.kept = kept


def transition(batch: Batch, slots: Sequence[Slot | None], now: int) -> list[Move]:
    """The moves of a batch over the slots of its entries (None: nothing stored), at `now`.

    Changes nothing: the store writes the moves that are kept, with `write`.
    """
    steps: list[tuple[Entry, State, Step]] = []
    passes = True
    latest: dict[int, State] = {}  # where several entries share a slot, one follows the other
    for entry, slot in zip(batch.entries, slots, strict=True):
        rule = entry.rule
        before = latest[id(slot)] if id(slot) in latest else current(slot, rule, now)
        stepped = rule.step(rule.numbers, before, now // rule.tick, entry.cost)
        if stepped[0] and slot is not None:
            latest[id(slot)] = stepped[1]
        steps.append((entry, before, stepped))
        passes = passes and (stepped[0] or not entry.veto)
    passes = passes and batch.charge
    moves: list[Move] = []
    for entry, before, stepped in steps:
        rule = entry.rule
        fits, state, expires, remaining, wait = stepped
        charged = fits and passes and entry.cost > 0
        if fits and not charged and entry.cost:
            # As if it had been refused, by a cost that never passes: if a clock has stepped back,
            # its count moves to now with that of the limit that did refuse.
            refused = rule.step(rule.numbers, before, now // rule.tick, rule.numbers[2] + 1)
            _, state, expires, remaining, _ = refused
        if not batch.charge:
            state = before
        row = Row(entry, fits=fits, charged=charged, remaining=remaining, wait=wait, state=state)
        moves.append(Move(row, expires * rule.tick, kept=state is not before))
    return moves


def write(move: Move, slot: Slot) -> None:
    """Put a kept move into its slot, and the charge's name into its row.

    A slot that has run out equals no slot: the store gives it another birth before.
    """
    row = move.row
    slot.state = row.state
    slot.shape = row.entry.rule.shape
    slot.expires = move.expires
    if row.charged:
        slot.charges += 1
    row.birth = slot.birth
    row.number = slot.charges


def current(slot: Slot | None, rule: Rule, now: int) -> State:
    """A slot's state in the shape that the rule has now; one that has run out equals no state."""
    if slot is None or slot.state is None or slot.expires <= now:
        return None
    if slot.shape == rule.shape:
        return slot.state
    return rule.kernel.convert(slot.state, slot.shape, rule.shape)


def give_back(slot: Slot, part: Part, now: int) -> bool:
    """Take a charge off its slot; false where it weighs no more or was given back before.

    Refunds are told apart by the charge's number: `slot.refunds` holds the number up to which all
    charges count as given back, then the others. So that the list stays short, at most
    `MOST_REFUNDS`, a charge that so many newer ones of its state were refunded before cannot be
    refunded any more.
    """
    floor, *done = slot.refunds or (0,)
    if slot.state is None or slot.birth != part.birth or slot.expires <= now:
        return False
    if part.number <= floor or part.number in done:
        return False
    period, tick = slot.shape
    at = part.at * part.shape[1] // tick
    kernel = KERNELS[part.rule_id.split("|", 1)[0]]
    state = kernel.refund(period // tick, slot.state, now // tick, at, part.cost)
    if state is slot.state:
        return False
    slot.state = state
    done = sorted((*done, part.number))
    while done and (done[0] == floor + 1 or len(done) > MOST_REFUNDS):
        floor = done.pop(0)
    slot.refunds = (floor, *done)
    return True
