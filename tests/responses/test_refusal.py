"""The answer to a refused call: a problem document that says which limit and how long."""

import json

import pytest

from noria import Limit, Limiter, StoreUnavailable
from noria.responses import policy_name, refusal

NOW = 1_700_000_000_300_000


def refused(*limits, times=100, cost=1):
    with Limiter("memory://", clock=lambda: NOW) as limiter:
        for _ in range(times):
            decision = limiter.consume("k", *limits, cost=cost)
            if not decision:
                decision.outcomes  # noqa: B018 - read while the store is open
                return decision
    raise AssertionError


def test_a_denial_is_a_problem_document_and_agrees_with_its_headers():
    answer = refusal(refused(Limit("5/minute", algorithm="fixed-window", name="login")))
    headers = dict(answer.headers)
    assert answer.status == 429
    assert headers["Content-Type"] == "application/problem+json"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Length"] == str(len(answer.body))
    assert headers["Retry-After"] == "40"
    message = "The limit of 5 per minute is used up. Try again in 40 seconds."
    assert json.loads(answer.body) == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": message,
        "violated-policies": ["login"],
        "error": "rate_limit_exceeded",
        "message": message,
        "retry_after": 40,
    }


def test_each_header_is_there_once():
    names = [name.lower() for name, _ in refusal(refused("1/minute")).headers]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (Limit("1/s", algorithm="fixed-window"), "1 per second is used up. Try again in 1 second."),
        (
            Limit("2/10s", algorithm="sliding-window-log"),
            "2 per 10 seconds is used up. Try again in 10 seconds.",
        ),
        (
            Limit("6/minute", algorithm="token-bucket", burst=2),
            "6 per minute, 2 at once, is used up. Try again in 10 seconds.",
        ),
        (Limit("0/hour"), "0 per hour can never admit this request."),
    ],
)
def test_the_message_states_the_limit_its_window_and_the_wait(limit, message):
    assert json.loads(refusal(refused(limit)).body)["message"] == f"The limit of {message}"


def test_never_is_null_and_has_no_retry_after():
    answer = refusal(refused("5/minute", cost=6))
    assert json.loads(answer.body)["retry_after"] is None
    assert "Retry-After" not in dict(answer.headers)


def test_the_violated_policies_are_those_that_refused_and_the_wait_is_their_longest():
    hour = Limit("3/hour", algorithm="fixed-window", name="hour")
    day = Limit("3/day", algorithm="fixed-window", name="day")
    answer = refusal(refused(hour, day, "9/minute", Limit("1/s", name="seen", shadow=True)))
    body = json.loads(answer.body)
    assert body["violated-policies"] == ["hour", "day"]
    assert body["message"].startswith("The limit of 3 per day")
    assert dict(answer.headers)["Retry-After"] == str(body["retry_after"]) == "6400"


@pytest.mark.parametrize(
    ("rate", "name"),
    [
        ("5/minute", "5-1m"),
        ("5/60s", "5-1m"),
        ("10/5m", "10-5m"),
        ("1/500ms", "1-500ms"),
        ("3/90s", "3-90s"),
        ("7/2 weeks", "7-2w"),
        ("8/36h", "8-36h"),
        (Limit(1, per=0.0000015), "1-2us"),
        (Limit("5/minute", name="login"), "login"),
    ],
)
def test_a_limit_has_a_name_that_does_not_depend_on_the_process(rate, name):
    with Limiter("memory://") as limiter:
        assert policy_name(limiter.peek("k", rate).outcomes[0]) == name


def test_a_head_request_gets_the_headers_and_no_body():
    decision = refused("1/minute")
    full, head = refusal(decision), refusal(decision, method="HEAD")
    assert head.body == b""
    assert head.headers == full.headers


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "problem+json"),
        ("*/*", "problem+json"),
        ("text/html", "problem+json"),
        ("application/*", "problem+json"),
        ("application/json", "json"),
        ("text/html, Application/JSON;q=0.5", "json"),
        ("application/json, application/problem+json", "problem+json"),
        ("application/problem+json;q=0.1, application/json", "problem+json"),
        ("application/problem+json;q=0, application/json", "json"),
        ("application/json; q=0.000", "problem+json"),
        ("application/json;charset=utf-8", "json"),
        (",,;q=,", "problem+json"),
    ],
)
def test_plain_json_is_for_those_who_name_it_and_not_the_problem_type(accept, expected):
    headers = dict(refusal(refused("1/minute"), accept).headers)
    assert headers["Content-Type"] == f"application/{expected}"


def test_a_name_may_be_of_any_script():
    answer = refusal(refused(Limit("1/minute", name="تسجيل")))
    assert json.loads(answer.body.decode("utf-8"))["violated-policies"] == ["تسجيل"]
    assert dict(answer.headers)["Content-Length"] == str(len(answer.body))


class Down:
    """A store that does not answer."""

    secret = b"s"

    def space(self, *_):
        return self

    def decide(self, *_):
        raise StoreUnavailable

    def close(self):
        pass


def test_a_store_that_is_down_is_our_fault_and_no_callers():
    with Limiter(Down(), on_store_failure="closed") as limiter:
        answer = refusal(limiter.consume("k", "5/minute"))
    headers, body = dict(answer.headers), json.loads(answer.body)
    assert answer.status == body["status"] == 503
    assert headers["Retry-After"] == "1"
    assert headers["Cache-Control"] == "no-store"
    assert not [name for name in headers if "RateLimit" in name]
    assert body["type"].endswith("#temporary-reduced-capacity")
    assert body["title"] == "Temporary Reduced Capacity"
    assert body["violated-policies"] == []
    assert body["retry_after"] == 1
