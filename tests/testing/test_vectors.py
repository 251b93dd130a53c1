"""The vectors are what the model says, and say what they should cover."""

from importlib.resources import files
from itertools import pairwise

import histories
import pytest

from noria.testing.promises import ALGORITHMS
from noria.testing.vectors import load


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_files_are_what_the_model_says(algorithm):
    kept = files("noria.testing.vectors").joinpath(f"{algorithm}.json").read_text(encoding="utf-8")
    assert kept == histories.text_of(algorithm), "run: python tests/testing/histories.py"


def test_the_vectors_cover_what_goes_wrong_elsewhere():
    rows = [row for case in load() for row in case["rows"]]
    assert {row["do"] for row in rows} == {"consume", "peek", "refund", "reset", "limit"}
    assert {row.get("retry_after") for row in rows} >= {None, "never"}
    assert {row.get("changed") for row in rows} == {None, True, False}
    assert any(case["tick_us"] > 1_000_000 for case in load())
    assert any(after["now"] < before["now"] for before, after in pairwise(rows)
               if "now" in before and "now" in after)  # fmt: skip
    sliding = [
        row
        for case in load()
        if case["algorithm"] == "sliding-window"
        for row in case["rows"]
        if isinstance(row.get("retry_after"), int)
    ]
    assert any(row["retry_after"] > row["window_ends_after"] for row in sliding)
