"""The answer to a refused call: a problem document (RFC 9457) that a client can act on.

429 says that this caller is over a quota, 503 that we cannot tell and would rather not guess; the
problem types are those of draft-ietf-httpapi-ratelimit-headers-11, section 5. Machine-readable
members sit beside the sentences, so that nobody has to parse these.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from noria.model.rate import format_rate
from noria.responses import english
from noria.responses.naming import policy_name, speaker
from noria.responses.whole import microseconds, retry_seconds
from noria.responses.xratelimit import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from noria.model.decision import Decision, Outcome

_TYPES = "https://iana.org/assignments/http-problem-types#"
_PROBLEM = "application/problem+json"
_JSON = "application/json"
_REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)")


class Refusal(NamedTuple):
    """An answer in place of the application's."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def refusal(decision: Decision, accept: str = "", method: str = "GET") -> Refusal:
    """The answer to a refused call, given the request's `Accept` and method.

    `application/problem+json`, or `application/json` where `Accept` names that and not the former.
    An answer to HEAD has the headers of one to GET, and no body.
    """
    problem = _problem(decision, speaker(decision))
    body = json.dumps(problem, ensure_ascii=False).encode()
    headers = [
        ("Content-Type", _content_type(accept)),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        *fields(decision),
    ]
    return Refusal(int(problem["status"]), headers, b"" if method == "HEAD" else body)


def _problem(decision: Decision, outcome: Outcome | None) -> dict[str, Any]:
    wait = retry_seconds(decision.retry_after)
    message = _message(outcome, wait)
    # Without an outcome nobody could say: the store is down and the policy is closed.
    capacity = outcome is None
    violated = (each for each in decision.outcomes if not each.allowed and not each.shadow)
    return {
        "type": _TYPES + ("temporary-reduced-capacity" if capacity else "quota-exceeded"),
        "title": english.CAPACITY_TITLE if capacity else english.QUOTA_TITLE,
        "status": 503 if capacity else 429,
        "detail": message,
        "violated-policies": [policy_name(each) for each in violated],
        "error": "temporary_reduced_capacity" if capacity else "rate_limit_exceeded",
        "message": message,
        "retry_after": wait,
    }


def _message(outcome: Outcome | None, wait: int | None) -> str:
    words = "" if wait is None else english.seconds(wait)
    if outcome is None:
        return english.UNAVAILABLE.format(wait=words)
    period = format_rate(1, microseconds(outcome.period)).removeprefix("1/")
    wording = english.RATE if outcome.burst in (None, outcome.limit) else english.BURST
    rate = wording.format(limit=outcome.limit, period=period, burst=outcome.burst)
    return (english.NEVER if wait is None else english.LIMITED).format(rate=rate, wait=words)


def _content_type(accept: str) -> str:
    """Of the two types the one that is named; no other type is worth refusing to explain for."""
    ranges = [item for item in accept.lower().split(",") if not _REFUSED.search(item)]
    named = {item.partition(";")[0].strip() for item in ranges}
    return _JSON if _JSON in named and _PROBLEM not in named else _PROBLEM
