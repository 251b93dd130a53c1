"""Rate text: what is understood, and that nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria import ConfigError, Limit
from noria.model.rate import LONGEST_PERIOD, MOST_UNITS, format_rate, parse_rate, shown

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/minute", (100, MINUTE)),
        ("10/5m", (10, 5 * MINUTE)),
        ("1/500ms", (1, 500_000)),
        ("1000 per hour", (1_000, HOUR)),
        ("5 per 30 seconds", (5, 30 * SECOND)),
        ("5 per 30seconds", (5, 30 * SECOND)),
        ("5/30 seconds", (5, 30 * SECOND)),
        ("0/s", (0, SECOND)),
        ("007/01s", (7, SECOND)),
        ("1/S", (1, SECOND)),
        ("1 PER Minute", (1, MINUTE)),
        ("1000000000/ms", (10**9, 1_000)),
        *((f"2/{unit}", (2, SECOND)) for unit in ("s", "sec", "second", "seconds")),
        *((f"2/{unit}", (2, MINUTE)) for unit in ("m", "min", "minute", "minutes")),
        *((f"2/{unit}", (2, HOUR)) for unit in ("h", "hour", "hours")),
        *((f"2/{unit}", (2, DAY)) for unit in ("d", "day", "days")),
        *((f"2/{unit}", (2, 7 * DAY)) for unit in ("w", "week", "weeks")),
    ],
)
def test_rate_text_is_understood(text, rate):
    assert parse_rate(text) == rate
    assert Limit(text).limit == rate[0]
    assert Limit(text).period == rate[1] / SECOND


WRONG = [
    "",
    " ",
    "10",
    "/",
    "/minute",
    "10/",
    "10/minute/",
    "minute",
    "ten/minute",
    "10 minute",
    "10 / minute",
    "10/ minute",
    "10 /minute",
    " 10/minute",
    "10/minute ",
    "10/minute\n",
    "10\n/minute",
    "10/min\0",
    "1 per fortnight",
    "5/2fortnight",
    "0 per 0 second",
    "5/0s",
    "5/0 seconds",
    "5/00m",
    "5/-1s",
    "-5/s",
    "+5/s",
    "5/+1s",
    "5.0/s",
    "5e3/s",
    "1_000/s",
    "1,000/s",
    "5/1.5s",
    "0x10/s",
    "5/s/m",
    "5/m s",
    "5/ms ec",
    "5perminute",
    "5 perminute",
    "5per minute",
    "5 a minute",
    "5 in 1 minute",
    "5/min.",
    "5/us",
    "5/month",
    "5/M5",
    "5/y",
    "5/\u017f",
    "5/\u017fec",
    "5/K",
    "\uff11\uff10/minute",
    "10/\uff15m",
    "\u0661\u0660/minute",
    "10/minute\u00b2",
    "\u00b2/minute",
    "10\uff0fminute",
    "10/minut\u00e9",
    "10/\uff4dinute",
    "10 per",
    "per 10",
    "nan/s",
    "inf/s",
    "5/" + "9" * 40 + "s",
    "9" * 40 + "/s",
    "🔑/minute",
    "10\u00a0per minute",
    "10/\u2009minute",
    "10\tper\tminute",
    "None",
    "True/s",
]


@pytest.mark.parametrize("text", WRONG, ids=ascii)
def test_anything_else_is_an_error_that_names_the_text_and_what_was_expected(text):
    with pytest.raises(ConfigError, match=r"expected|N is 0 to|up to ten years") as caught:
        Limit(text)
    assert shown(text) in str(caught.value)


@pytest.mark.parametrize(
    "text", [f"{10**9 + 1}/s", "1/3654d", "1/522w", "1/999999999999999d", "1/87673h"]
)
def test_a_rate_beyond_what_is_counted_is_an_error(text):
    with pytest.raises(ConfigError, match="rate") as caught:
        Limit(text)
    assert text in str(caught.value)


def test_ten_years_and_a_thousand_million_are_taken():
    assert Limit("1000000000/3650d").limit == MOST_UNITS
    assert Limit("1/520w").period == 520 * 7 * 86_400
    assert LONGEST_PERIOD >= 3_650 * DAY


@given(st.text(max_size=20))
def test_no_text_becomes_a_limit_by_accident(text):
    try:
        count, period = parse_rate(text)
    except ConfigError as error:
        named = str(error)
    else:
        named = shown(text)
        assert text.isascii()
        assert text[0].isdigit()
        assert count >= 0
        assert period >= 1_000
    assert shown(text) in named


@given(
    st.integers(0, 10**9),
    st.integers(1, 10**6),
    st.sampled_from([1_000, SECOND, MINUTE, HOUR, DAY, 7 * DAY]),
)
def test_a_rate_is_written_as_it_is_read(count, times, unit):
    assert parse_rate(format_rate(count, times * unit)) == (count, times * unit)


def test_a_long_text_is_cut_in_messages():
    with pytest.raises(ConfigError) as caught:
        Limit("x" * 10**6)
    assert len(str(caught.value)) < 500
    assert "1000002 characters" in str(caught.value)
