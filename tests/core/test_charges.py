"""A charge is text that only its store can have made, for its namespace."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria import UsageError
from noria.core.charges import seal, unseal
from noria.model.batch import Part

SECRET = b"s" * 32
numbers = st.integers(0, 2**60)
parts = st.builds(
    Part,
    st.text(min_size=1),
    st.text(),
    st.tuples(numbers, numbers),
    numbers,
    numbers,
    numbers,
    numbers,
)


def fields(part):
    return [getattr(part, name) for name in Part.__slots__]


@given(st.text(min_size=1), st.lists(parts, min_size=1, max_size=4))
def test_a_charge_is_read_as_it_was_written(namespace, charged):
    text = seal(SECRET, namespace, charged)
    assert text.isascii()
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=")
    assert [fields(part) for part in unseal(SECRET, namespace, text)] == [
        fields(part) for part in charged
    ]


ONE = Part("k", "fixed-window|#", (60, 1), 5, 1, 1, 1)


@given(st.binary(max_size=200))
def test_nothing_else_is_a_charge(raw):
    text = base64.urlsafe_b64encode(raw).decode()
    with pytest.raises(UsageError, match="charge"):
        unseal(SECRET, "noria", text)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_bit_of_a_charge_can_be_changed(at, mask):
    raw = bytearray(base64.urlsafe_b64decode(seal(SECRET, "noria", [ONE])))
    raw[at % len(raw)] ^= mask
    with pytest.raises(UsageError, match="not given out"):
        unseal(SECRET, "noria", base64.urlsafe_b64encode(raw).decode())


def test_another_secret_or_namespace_does_not_fit():
    text = seal(SECRET, "noria", [ONE])
    with pytest.raises(UsageError, match="not given out"):
        unseal(b"t" * 32, "noria", text)
    with pytest.raises(UsageError, match="namespace 'noria', not 'other'"):
        unseal(SECRET, "other", text)


def test_a_seal_does_not_cover_a_longer_body():
    raw = base64.urlsafe_b64decode(seal(SECRET, "noria", [ONE]))
    forged = raw[:16] + json.dumps(["noria", []]).encode()
    for body in (forged, raw + b" ", raw[:-1], raw[:16], b""):
        with pytest.raises(UsageError, match="not given out"):
            unseal(SECRET, "noria", base64.urlsafe_b64encode(body).decode())


@pytest.mark.parametrize(
    "wrong",
    [None, 5, b"AAAA", ["AAAA"], "", "é", "A", "AAAAA", "A A", "AAAA\n", "\ud800"],
    ids=ascii,
)
def test_what_is_no_charge_at_all_is_an_error_that_says_so(wrong):
    with pytest.raises(UsageError, match="charge"):
        unseal(SECRET, "noria", wrong)
