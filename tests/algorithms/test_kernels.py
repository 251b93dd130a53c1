"""Each kernel against the vectors, its state included, and what the kernels' contract says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.algorithms import ALIASES, KERNELS
from noria.algorithms.sliding_window_log import coarsen
from noria.testing.vectors import limit_of, load

CASES = list(load())
COUNTS = st.integers(0, 6)
WINDOWS = st.integers(1, 20)
CALLS = st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 6)), max_size=25)
NUMBERS = st.tuples(st.integers(1, 6), WINDOWS, st.integers(1, 6))
KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))


def plain(kernel, state):
    """A state as the vectors write it."""
    if state is None:
        return None
    if not kernel.grows:
        return list(state)
    last, log, start, end, total = state[:5]
    befores = [log.entry(at)[1] for at in range(start, end)] + [total]
    units = {}
    for at in range(start, end):
        time = log.entry(at)[0]
        units[time] = units.get(time, 0) + befores[at - start + 1] - befores[at - start]
    return [last, [[time, units[time]] for time in units]]


def said(fits, left, wait, figures, tick):
    reset, ends, grows = figures
    never = not fits and wait is None
    return {
        "allowed": fits,
        "remaining": left,
        "reset_after": reset * tick,
        "grows_after": grows * tick,
        "window_ends_after": None if ends is None else ends * tick,
        "retry_after": "never" if never else None if fits else wait * tick,
    }


def figures(rule, state, now):
    """What a call of nothing sees, as `settle` puts it together."""
    left = rule.step(rule.numbers, state, now, 0)[3]
    reset, ends = rule.kernel.rest(rule.numbers, state, now)
    grows = rule.step(rule.numbers, state, now, left + 1)[4] if left < rule.numbers[2] else 0
    return reset, ends, grows or 0


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case['algorithm']}: {case['title']}" for case in CASES]
)
def test_a_kernel_goes_as_recorded(case):
    rule = limit_of(case["algorithm"], case).rule
    assert rule.tick == case["tick_us"]
    state, expires, shape, charges = None, 0, rule.shape, {}
    for at, row in enumerate(case["rows"]):
        if row["do"] == "limit":
            rule = limit_of(case["algorithm"], row).rule
            assert rule.tick == row["tick_us"]
            continue
        now = row["now"] // rule.tick
        if row["do"] == "reset":
            state = None
        elif row["do"] == "refund":
            if row["changed"]:
                when, cost = charges[row["row"]]
                state = rule.kernel.refund(rule.numbers[1], state, now, when, cost)
        else:
            before = state if row["now"] < expires else None
            if before is not None and shape != rule.shape:
                before = rule.kernel.convert(before, shape, rule.shape)
            fits, after, ends, left, wait = rule.step(rule.numbers, before, now, row["cost"])
            assert fits == row["allowed"]
            if row["do"] == "consume" and after is not before:
                state, expires, shape = after, ends * rule.tick, rule.shape
                charges[at] = state[0], row["cost"]
                seen = state
            else:
                seen = before
                left = rule.step(rule.numbers, before, now, 0)[3]
            answer = said(fits, left, wait, figures(rule, seen, now), rule.tick)
            assert answer == {name: row[name] for name in answer}
        assert plain(rule.kernel, state) == row["state"]
        assert state is None or expires == row["expires"]


def played(kernel, numbers, calls):
    """(state, expires, now) after calls that begin at tick 1,000."""
    state, expires, now = None, 0, 1_000
    for gap, cost in calls:
        now += gap
        if state is not None and now >= expires:
            state = None
        _, after, ends, _, _ = kernel.step(numbers, state, now, cost)
        if after is not state:
            state, expires = after, ends
    return state, expires, now


@KERNEL
@given(numbers=NUMBERS, calls=CALLS, cost=COUNTS, later=COUNTS)
def test_what_has_expired_equals_nothing(kernel, numbers, calls, cost, later):
    if kernel.name != "token-bucket":
        numbers = (numbers[0], numbers[1], numbers[0])
    state, expires, _ = played(kernel, numbers, calls)
    if state is None:
        return
    now = expires + later
    fits, _, _, left, wait = kernel.step(numbers, kernel.copy(state), now, cost)
    fresh, _, _, all_left, fresh_wait = kernel.step(numbers, None, now, cost)
    assert (fits, left, wait) == (fresh, all_left, fresh_wait)
    assert kernel.rest(numbers, state, now)[0] == 0


@KERNEL
@given(numbers=NUMBERS, calls=CALLS, cost=st.integers(1, 9))
def test_a_refusal_and_a_look_return_the_state_they_were_given(kernel, numbers, calls, cost):
    if kernel.name != "token-bucket":
        numbers = (numbers[0], numbers[1], numbers[0])
    state, _, now = played(kernel, numbers, calls)
    assert kernel.step(numbers, state, now, 0)[1] is state
    fits, after, *_ = kernel.step(numbers, state, now, cost)
    assert fits or after is state or state[0] - now > numbers[1]


@KERNEL
@given(numbers=st.tuples(st.integers(1, 6), WINDOWS, st.integers(1, 6)), calls=CALLS, gap=COUNTS)
def test_a_copy_can_be_stepped_without_touching_the_state(kernel, numbers, calls, gap):
    state, _, now = played(kernel, numbers, calls)
    if state is None:
        return
    before = plain(kernel, state)
    for cost in (1, 1, 2):
        kernel.step(numbers, kernel.copy(state), now + gap, cost)
    assert plain(kernel, state) == before


@KERNEL
@given(
    limit=COUNTS,
    windows=st.tuples(WINDOWS, WINDOWS),
    ticks=st.tuples(st.sampled_from([1, 2, 5]), st.sampled_from([1, 2, 5])),
    calls=CALLS,
    later=st.integers(0, 30),
)
def test_a_conversion_is_never_in_the_callers_favour(  # noqa: PLR0913 - the draws
    kernel, limit, windows, ticks, calls, later
):
    """At the moment of the change no less is in use, whole periods and ticks aside."""
    numbers = (limit, windows[0], limit)
    state, expires, now = played(kernel, numbers, calls)
    micro = (now + later) * ticks[0]
    if state is None or micro >= expires * ticks[0] or kernel.name == "sliding-window":
        return
    old, new = (windows[0] * ticks[0], ticks[0]), (windows[1] * ticks[1], ticks[1])
    converted = kernel.convert(kernel.copy(state), old, new)
    before = kernel.step(numbers, state, now + later, 0)[3]
    after = kernel.step((limit, windows[1], limit), converted, micro // ticks[1], 0)[3]
    slower = windows[1] * ticks[1] >= windows[0] * ticks[0]
    assert after >= 0
    if slower and kernel.name in ("sliding-window-log", "token-bucket"):
        assert after <= before


@given(calls=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=2, max_size=20))
def test_a_coarser_log_is_a_stricter_one(calls):
    kernel = KERNELS["sliding-window-log"]
    numbers = (30, 50, 30)
    state, _, now = played(kernel, numbers, calls)
    coarse = coarsen(kernel.copy(state))
    for later in range(60):
        exact = kernel.step(numbers, kernel.copy(state), now + later, 0)[3]
        assert kernel.step(numbers, kernel.copy(coarse), now + later, 0)[3] <= exact


def test_a_log_keeps_one_entry_for_a_call_whatever_it_cost():
    kernel = KERNELS["sliding-window-log"]
    state, _, _ = played(kernel, (100_000, 50, 100_000), [(0, 40_000), (0, 1), (1, 59_999)])
    assert len(state[1].times) == 3
    assert plain(kernel, state)[1] == [[1_000, 40_001], [1_001, 59_999]]


def test_a_log_throws_away_what_no_longer_counts():
    kernel = KERNELS["sliding-window-log"]
    state, _, _ = played(kernel, (10, 10, 10), [(1, 1)] * 5_000)
    assert len(state[1].times) < 100


def test_other_names_of_algorithms_lead_to_known_ones():
    assert set(ALIASES) == {"sliding-window-counter", "gcra", "leaky-bucket"}
    assert set(ALIASES.values()) <= set(KERNELS)
