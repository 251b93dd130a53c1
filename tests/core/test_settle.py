"""What evidence means: which limit speaks, what ties do, and that a lying store is found out."""

import pytest

from noria import Limit, NoriaError, open_store
from noria.core.settle import Ledger, many
from noria.model.batch import Entry, Evidence, Row

NOW = 1_700_000_000_000_000 // 60_000_000 * 60_000_000


@pytest.fixture
def ledger():
    store = open_store("memory://")
    return Ledger(store, store.space("noria", None), "noria")


def a_row(  # noqa: PLR0913 - what a row says
    rate="5/minute", remaining=4, wait=0, reset=60, *, charged=None, cost=1, **options
):
    """A row about a limit; times in seconds."""
    limit = Limit(rate, **options)
    fits = wait == 0
    ticks = None if wait is None else wait * 1_000_000 // limit.rule.tick
    return Row(
        Entry("k", limit.rule, cost, veto=not limit.shadow),
        fits=fits,
        charged=fits if charged is None else charged,
        remaining=remaining,
        wait=ticks,
        state=None,
        figures=(reset * 1_000_000 // limit.rule.tick, None, 0),
    )


def spoken(ledger, *rows):
    decision = many(ledger, Evidence(NOW, list(rows)))
    assert len(decision.outcomes) == len(rows)
    return decision.limit, decision.remaining, decision.reset_after, decision.retry_after


def test_of_limits_that_pass_the_one_with_the_least_left_speaks(ledger):
    assert spoken(ledger, a_row("5/minute", 4), a_row("9/hour", 2, reset=7), a_row("7/day", 3)) == (
        9,
        2,
        7,
        None,
    )


def test_of_limits_that_deny_the_longest_wait_speaks(ledger):
    rows = [
        a_row("5/minute", 0, 10),
        a_row("9/hour", 3, charged=False),
        a_row("7/day", 1, 30, reset=99),
    ]
    assert spoken(ledger, *rows) == (7, 1, 99, 30)
    assert spoken(ledger, *reversed(rows)) == (7, 1, 99, 30)


def test_never_is_the_longest_wait(ledger):
    rows = [a_row("5/minute", 0, 10**6), a_row("9/hour", 9, None, reset=0)]
    assert spoken(ledger, *rows) == (9, 9, 0, None)
    decision = many(ledger, Evidence(NOW, rows))
    assert decision.reason == "never"
    assert [outcome.reason for outcome in decision.outcomes] == ["limited", "never"]


def test_a_tie_goes_to_the_longer_reset(ledger):
    pair = [a_row("5/minute", 2, reset=10), a_row("9/hour", 2, reset=20)]
    assert spoken(ledger, *pair)[0] == spoken(ledger, *reversed(pair))[0] == 9
    pair = [a_row("5/minute", 0, 5, reset=10), a_row("9/hour", 0, 5, reset=20)]
    assert spoken(ledger, *pair)[0] == spoken(ledger, *reversed(pair))[0] == 9


def test_waits_are_compared_as_time_whatever_their_ticks(ledger):
    coarse = a_row("1000000000/3650d", 0, 3_504, reset=1)
    fine = a_row("5/minute", 0, 3_505, reset=1)
    assert coarse.entry.rule.tick > 1_000_000
    assert spoken(ledger, coarse, fine)[3] == 3_505


def test_shadows_do_not_speak(ledger):
    shadow = a_row("1/minute", 0, 50, name="s", shadow=True)
    assert spoken(ledger, shadow, a_row("9/hour", 2))[:2] == (9, 2)
    assert spoken(ledger, shadow, a_row("9/hour", 0, 3))[3] == 3
    decision = many(ledger, Evidence(NOW, [shadow]))
    assert decision
    assert (decision.limit, decision.remaining, decision.reset_after, decision.reason) == (
        None,
        None,
        None,
        "ok",
    )
    assert (decision.outcomes[0].allowed, decision.outcomes[0].shadow) == (False, True)


def test_an_overflow_is_said(ledger):
    row = a_row()
    row.overflow = True
    assert many(ledger, Evidence(NOW, [row])).outcomes[0].reason == "overflow"


def test_times_are_seconds_by_the_stores_clock(ledger):
    decision = many(ledger, Evidence(NOW + 250_000, [a_row(wait=1.5, remaining=0)]))
    assert decision.decided_at == (NOW + 250_000) / 1_000_000
    assert decision.retry_after == 1.5


@pytest.mark.parametrize(
    "lie",
    [
        {"wait": 0, "remaining": -1},
        {"wait": 5, "charged": True},
        {"wait": None, "charged": True},
    ],
)
def test_a_store_that_contradicts_itself_is_found_out(ledger, lie):
    with pytest.raises(NoriaError, match="contradicts itself"):
        many(ledger, Evidence(NOW, [a_row(**lie)]))
    row = a_row()
    row.wait = 5
    with pytest.raises(NoriaError, match="contradicts itself"):
        many(ledger, Evidence(NOW, [row]))


def test_only_charges_are_sealed(ledger):
    charged = many(ledger, Evidence(NOW, [a_row(charged=False)]))
    assert charged.charge is None
