"""The log of refusals: a line each at first, few in a flood, and no key in clear."""

import logging

import pytest

from noria import Limit, Limiter
from noria.responses import Journal
from noria.responses.journal import LINES

START = 1_700_000_000_000_000


@pytest.fixture
def clock():
    class Clock:
        now = START

        def __call__(self):
            return self.now

    return Clock()


@pytest.fixture
def limiter(clock):
    with Limiter("memory://", clock=clock) as limiter:
        yield limiter


def write(journal, limiter, limit, key="203.0.113.9"):
    decision = limiter.consume(key, limit)
    assert not decision
    journal.refused(decision, key)


def test_a_refusal_is_a_line_with_its_facts_as_attributes(limiter, caplog):
    write(Journal("secret"), limiter, Limit("0/minute", name="login"))
    (record,) = caplog.records
    assert record.name == "noria"
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("rate_limited limit=login key=")
    assert (record.limit, record.retry_after, record.suppressed) == ("login", None, 0)


def test_a_flood_writes_a_bounded_number_of_lines_and_says_how_many_it_left_out(
    limiter, clock, caplog
):
    journal, limit = Journal(), Limit("0/minute", name="flooded")
    for _ in range(LINES + 500):
        write(journal, limiter, limit)
    assert len(caplog.records) == LINES
    clock.now += 59_999_999
    write(journal, limiter, limit)
    assert len(caplog.records) == LINES
    clock.now += 1
    write(journal, limiter, limit)
    assert [record.suppressed for record in caplog.records] == [0] * LINES + [501]


def test_limits_have_budgets_of_their_own(limiter, caplog):
    journal = Journal()
    for _ in range(LINES + 1):
        write(journal, limiter, Limit("0/minute", name="flooded"))
    write(journal, limiter, Limit("0/minute", name="quiet"))
    assert caplog.records[-1].limit == "quiet"


def test_a_clock_that_steps_back_does_not_silence_the_log(limiter, clock, caplog):
    journal, limit = Journal(), Limit("0/minute", name="flooded")
    for _ in range(LINES + 1):
        write(journal, limiter, limit)
    clock.now -= 3_600_000_000
    write(journal, limiter, limit)
    assert len(caplog.records) == LINES + 1


def test_keys_are_hashed_alike_where_the_secret_is_the_same(limiter, caplog, monkeypatch):
    monkeypatch.setenv("NORIA_SECRET", "s" * 100)
    for journal in (Journal(), Journal(), Journal("other")):
        write(journal, limiter, "0/minute")
    monkeypatch.delenv("NORIA_SECRET")
    for journal in (Journal(), Journal()):
        write(journal, limiter, "0/minute")
    keys = [record.key for record in caplog.records]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
    assert "203.0.113.9" not in caplog.text


def test_a_log_that_is_not_wanted_costs_nothing(limiter, caplog):
    caplog.set_level(logging.ERROR, "noria")
    write(Journal(), limiter, "0/minute")
    assert not caplog.records
