"""Every argument is checked before anything is asked of a store, and named when it is wrong."""

import pytest

from noria import ConfigError, Limit, UsageError
from noria.core.plan import plan, plan_many, rules_of

LIMIT = Limit("5/minute")

COSTS = [
    -1,
    -(2**31),
    2**31 + 1,
    10**30,
    True,
    False,
    0.0,
    1.0,
    0.5,
    float("nan"),
    float("inf"),
    -0.0,
    "1",
    "",
    b"1",
    None,
    [1],
    (1,),
    1j,
    object(),
]

KEYS = [
    "a",
    " ",
    "a:b",
    "a/b",
    "{}",
    "{a}",
    "a\nb",
    "\0",
    "a\0b",
    "🔑",
    "مفتاح",
    "é",
    "e\u0301",
    "\u200b",
    "\uffff",
    "\U0010ffff",
    "None",
    "0",
    "%",
    "*",
    "k" * 1_000_000,
]

WRONG_KEYS = [
    "",
    None,
    b"k",
    bytearray(b"k"),
    5,
    0,
    True,
    1.5,
    ["k"],
    ("k",),
    {"k": 1},
    object(),
    "\ud800",
    "a\udfffb",
]


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_a_wrong_cost_is_named_with_what_was_expected(cost):
    for make in (
        lambda: plan("k", (LIMIT,), cost, charge=True),
        lambda: plan_many([("k", LIMIT, cost)], charge=True),
    ):
        with pytest.raises(UsageError, match=r"whole number.* from 0 to 2") as caught:
            make()
        assert repr(cost)[:20] in str(caught.value)


@pytest.mark.parametrize("cost", [0, 1, 2, 2**31])
def test_costs_up_to_the_largest_are_taken(cost):
    (entry,) = plan("k", (LIMIT,), cost, charge=True).entries
    assert entry.cost == cost


@pytest.mark.parametrize("key", KEYS, ids=lambda key: ascii(key[:12]))
def test_any_text_is_a_key_as_it_stands(key):
    (entry,) = plan(key, (LIMIT,), 1, charge=True).entries
    assert entry.key == key


@pytest.mark.parametrize("key", WRONG_KEYS, ids=ascii)
def test_a_wrong_key_is_named_with_what_was_expected(key):
    with pytest.raises(UsageError, match=r"expected text|no UTF-8 form") as caught:
        plan(key, (LIMIT,), 1, charge=True)
    assert "key" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_subclass_of_str_is_the_text_it_holds():
    class Key(str):
        __slots__ = ()

        def __str__(self):
            return "another"

        def __hash__(self):
            return 0

    (entry,) = plan(Key("k"), (LIMIT,), 1, charge=True).entries
    assert type(entry.key) is str
    assert entry.key == "k"


@pytest.mark.parametrize("limits", [(), []])
def test_no_limit_is_an_error(limits):
    with pytest.raises(UsageError, match="no limit"):
        plan("k", limits, 1, charge=True)


@pytest.mark.parametrize("limit", [None, 5, b"5/s", ("5/s",), Limit], ids=repr)
def test_what_is_no_limit_is_named(limit):
    with pytest.raises(UsageError, match=r"limit.*expected"):
        plan("k", (limit,), 1, charge=True)
    with pytest.raises(ConfigError, match="'5/soon'"):
        plan("k", ("5/soon",), 1, charge=True)


@pytest.mark.parametrize(
    "items",
    [
        [],
        (),
        None,
        5,
        "k",
        {},
        {("k", "5/s")},
        iter([("k", "5/s")]),
        [("k",)],
        [("k", "5/s", 1, 2)],
        [5],
        ["ab"],
        [None],
    ],
    ids=repr,
)
def test_what_is_no_list_of_pairs_is_an_error(items):
    with pytest.raises(UsageError, match="expected"):
        plan_many(items, charge=True)


def test_costs_of_a_pair_given_twice_add_up():
    batch = plan_many([("k", LIMIT, 2), ("other", LIMIT), ("k", Limit("5/minute"), 3)], charge=True)
    assert [(entry.key, entry.cost) for entry in batch.entries] == [("k", 5), ("other", 1)]


def test_two_limits_of_one_name_in_a_call_are_an_error():
    pair = Limit("5/s", name="plan"), Limit("9/s", name="plan")
    with pytest.raises(UsageError, match="'plan'") as caught:
        plan("k", pair, 1, charge=True)
    assert "5/second" in str(caught.value)
    assert "9/second" in str(caught.value)
    assert len(plan_many([("k", pair[0]), ("other", pair[1])], charge=True).entries) == 2


def test_a_shadow_has_no_veto():
    batch = plan("k", (LIMIT, Limit("5/minute", shadow=True)), 1, charge=True)
    assert [entry.veto for entry in batch.entries] == [True, False]


def test_a_call_is_of_bounded_size():
    most = [(f"k{number}", LIMIT) for number in range(1_000)]
    assert len(plan_many(most, charge=True).entries) == 1_000
    with pytest.raises(UsageError, match="1001"):
        plan_many([*most, ("more", LIMIT)], charge=True)


def test_rules_are_listed_once():
    assert len(rules_of([LIMIT, Limit("5/minute"), "5/minute", "5/hour"])) == 2
