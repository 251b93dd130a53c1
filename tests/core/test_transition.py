"""The rule of all or nothing, shadows and separate decisions; and giving back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria import Limit
from noria.core.transition import MOST_REFUNDS, give_back, transition, write
from noria.model.batch import Batch, Entry, Part, Slot
from noria.testing.promises import ALGORITHMS

NOW = 1_700_000_000_000_000


def a_slot(limit, used=0, birth=1):
    """A slot in which `used` units are charged at NOW."""
    slot = Slot(limit.rule.shape, birth)
    for _ in range(used):
        charge(slot, limit)
    return slot


def charge(slot, limit, cost=1, now=NOW):
    batch = Batch([Entry("k", limit.rule, cost, veto=True)], charge=True)
    (move,) = transition(batch, [slot], now)
    assert move.row.charged
    write(move, slot)
    row = move.row
    return Part("k", limit.rule.id, limit.rule.shape, row.state[0], cost, row.birth, row.number)


def an_entry(limit, cost=1, *, veto=True):
    return Entry("k", limit.rule, cost, veto=veto)


entries = st.lists(
    st.tuples(
        st.sampled_from(ALGORITHMS),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 3),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(entries=entries, charges=st.booleans())
def test_an_entry_is_charged_if_it_fits_and_no_veto_is_against_it(entries, charges):
    limits = [Limit(limit, 60, algorithm=algorithm) for algorithm, limit, *_ in entries]
    slots = [
        a_slot(limit, min(used, limit.limit))
        for limit, (_, _, used, _, _) in zip(limits, entries, strict=True)
    ]
    batch = Batch(
        [
            an_entry(limit, cost, veto=veto)
            for limit, (_, _, _, cost, veto) in zip(limits, entries, strict=True)
        ],
        charge=charges,
    )
    before = [slot.state for slot in slots]
    moves = transition(batch, slots, NOW)
    fits = [cost == 0 or min(used, limit) + cost <= limit for _, limit, used, cost, _ in entries]
    passes = charges and all(fit or not veto for fit, (*_, veto) in zip(fits, entries, strict=True))
    for move, fit, slot, (_, limit, used, cost, _) in zip(moves, fits, slots, entries, strict=True):
        row = move.row
        assert row.fits == fit
        assert row.charged == (fit and passes and cost > 0)
        assert row.remaining == limit - min(used, limit) - cost * row.charged
        assert move.kept == row.charged
        assert row.wait == 0 if fit else row.wait is None or row.wait > 0
        assert slot.state is before[slots.index(slot)]


def test_without_vetoes_each_is_decided_by_itself():
    """As in a service where each descriptor is asked about separately."""
    full, free = Limit("1/minute"), Limit("5/minute")
    batch = Batch([an_entry(full, veto=False), an_entry(free, veto=False)], charge=True)
    moves = transition(batch, [a_slot(full, 1), None], NOW)
    assert [move.row.charged for move in moves] == [False, True]


def test_a_shadow_is_charged_only_when_the_real_ones_pass():
    real, shadow = Limit("1/minute"), Limit("5/minute", shadow=True)
    batch = Batch([an_entry(shadow, veto=False), an_entry(real)], charge=True)
    assert [move.row.charged for move in transition(batch, [None, None], NOW)] == [True, True]
    moves = transition(batch, [None, a_slot(real, 1)], NOW)
    assert [(move.row.fits, move.row.charged) for move in moves] == [(True, False), (False, False)]


def test_a_full_shadow_stands_in_nobodys_way():
    real, shadow = Limit("5/minute"), Limit("1/minute", shadow=True)
    batch = Batch([an_entry(shadow, veto=False), an_entry(real)], charge=True)
    moves = transition(batch, [a_slot(shadow, 1), None], NOW)
    assert [move.row.charged for move in moves] == [False, True]


def test_what_has_run_out_equals_nothing_stored():
    limit = Limit("1/minute", algorithm="fixed-window")
    slot = a_slot(limit, 1)
    (move,) = transition(Batch([an_entry(limit)], charge=True), [slot], slot.expires)
    assert move.row.charged
    (move,) = transition(Batch([an_entry(limit)], charge=True), [slot], slot.expires - 1)
    assert not move.row.fits


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_charge_is_given_back_once_and_only_to_its_own_life(algorithm):
    limit = Limit("5/minute", algorithm=algorithm)
    slot = a_slot(limit)
    part, other = charge(slot, limit, 2), charge(slot, limit)
    assert give_back(slot, part, NOW)
    assert not give_back(slot, part, NOW)
    slot.birth += 1
    assert not give_back(slot, other, NOW)
    slot.birth -= 1
    assert not give_back(slot, other, slot.expires)
    assert give_back(slot, other, slot.expires - 1)
    assert not give_back(Slot(limit.rule.shape, 1), part, NOW)


def test_refunds_are_remembered_in_little_room():
    """In order they take one number; out of order, at most 64 and one."""
    limit = Limit("1000/minute")
    slot = a_slot(limit)
    parts = [charge(slot, limit) for _ in range(300)]
    assert all(give_back(slot, part, NOW) for part in parts[:100])
    assert slot.refunds == (100,)
    for part in reversed(parts[101:]):
        give_back(slot, part, NOW)
        assert len(slot.refunds) <= MOST_REFUNDS + 1
    assert not any(give_back(slot, part, NOW) for part in parts)


@given(st.permutations(range(40)), st.data())
def test_in_any_order_each_refund_works_once(order, data):
    limit = Limit("100/minute", algorithm=data.draw(st.sampled_from(ALGORITHMS)))
    slot = a_slot(limit)
    parts = [charge(slot, limit) for _ in order]
    assert all(give_back(slot, parts[number], NOW) for number in order)
    assert not any(give_back(slot, part, NOW) for part in parts)
