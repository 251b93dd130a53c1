"""The middleware message by message: what reaches the application, and what an answer carries."""

# ruff: noqa: ARG001, ARG002 - an application takes three arguments, whatever it needs

import asyncio
import json
import logging
import subprocess
import sys

import pytest

from noria import AsyncLimiter, ConfigError, Limit, Limiter, StoreUnavailable, UsageError
from noria.asgi import RateLimitMiddleware

NOW = 1_700_000_000_300_000
FIXED = Limit("2/minute", algorithm="fixed-window", name="two")


async def hello(scope, receive, send):
    start = {"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]}
    await send(start)
    await send({"type": "http.response.body", "body": b"hello"})


def limiter(**options):
    return AsyncLimiter("memory://", clock=lambda: NOW, **options)


def limited(app=hello, limits=(FIXED,), **options):
    options.setdefault("limiter", limiter())
    return RateLimitMiddleware(app, limits=list(limits), **options)


def http(path="/", method="GET", headers=(), client=("203.0.113.9", 1)):
    return {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "client": client,
    }


def call(app, scope=None):
    """All messages that an application sends for one scope."""
    sent = []

    async def receive():
        raise AssertionError("the body is not to be read")

    async def send(message):
        sent.append(message)

    asyncio.run(app(http() if scope is None else scope, receive, send))
    return sent


def headers(message):
    pairs = [(name.decode(), value.decode()) for name, value in message["headers"]]
    assert all(name == name.lower() for name, _ in pairs)
    assert len({name for name, _ in pairs}) == len(pairs), "each field once"
    return dict(pairs)


def statuses(app, scopes):
    return [call(app, scope)[0].get("status") for scope in scopes]


def test_an_allowed_request_is_answered_by_the_application_with_the_fields_added():
    start, body = call(limited())
    assert start["status"] == 200
    assert headers(start) == {
        "x-app": "1",
        "x-ratelimit-limit": "2",
        "x-ratelimit-remaining": "1",
        "x-ratelimit-reset": "1700000040",
    }
    assert body["body"] == b"hello"


def test_a_refused_request_never_reaches_the_application():
    calls = []

    async def counting(scope, receive, send):
        calls.append(scope)
        await hello(scope, receive, send)

    app = limited(counting)
    assert statuses(app, [http()] * 4) == [200, 200, 429, 429]
    assert len(calls) == 2


def test_a_refusal_is_one_start_and_one_body():
    app = limited(limits=["0/minute"])
    start, body = call(app, http(headers=[("accept", "application/json")]))
    assert start["type"] == "http.response.start"
    assert headers(start)["content-type"] == "application/json"
    assert headers(start)["content-length"] == str(len(body["body"]))
    assert json.loads(body["body"])["error"] == "rate_limit_exceeded"
    assert not body.get("more_body")


def test_two_accept_lines_are_one_list():
    pairs = [("accept", "application/json"), ("accept", "application/problem+json")]
    start, _ = call(limited(limits=["0/minute"]), http(headers=pairs))
    assert headers(start)["content-type"] == "application/problem+json"


def test_a_head_request_is_counted_and_refused_without_a_body():
    start, body = call(limited(limits=["0/minute"]), http(method="HEAD"))
    assert start["status"] == 429
    assert int(headers(start)["content-length"]) > 0
    assert body["body"] == b""


def test_the_tighter_of_two_limits_shows_from_the_first_answer_on():
    start, _ = call(limited(limits=["20/minute", "2/minute"]))
    assert headers(start)["x-ratelimit-limit"] == "2"


def test_callers_are_counted_by_address_without_a_key():
    app = limited()
    clients = [("2001:db8::1", 1), ("2001:db8::2", 2), ("2001:db8::3", 3), ("2001:db8:0:1::", 4)]
    assert statuses(app, [http(client=client) for client in clients]) == [200, 200, 429, 200]


def test_callers_without_an_address_share_one_count():
    app = limited()
    without = http()
    del without["client"]
    assert statuses(app, [http(client=None), without, http(client=("", 0))]) == [200, 200, 429]


def test_a_key_may_be_plain_or_async_and_none_exempts():
    def plain(scope):
        return None if scope["path"] == "/free" else scope["path"]

    async def coroutine(scope):
        await asyncio.sleep(0)
        return plain(scope)

    for key in (plain, coroutine):
        app = limited(key=key)
        paths = ["/a", "/a", "/a", "/b", "/free", "/free", "/free"]
        expected = [200, 200, 429, 200, 200, 200, 200]
        assert statuses(app, [http(path) for path in paths]) == expected
        assert "x-ratelimit-limit" not in headers(call(app, http("/free"))[0])


@pytest.mark.parametrize("key", ["", 7, b"k", "\ud800"])
def test_a_key_that_is_none_is_a_mistake_in_the_program_and_is_raised(key):
    with pytest.raises(UsageError, match="key"):
        call(limited(key=lambda _: key))


def test_what_the_key_raises_is_raised():
    with pytest.raises(KeyError, match="user"):
        call(limited(key=lambda scope: scope["user"]))


def test_a_cors_preflight_costs_nothing():
    preflight = [("Origin", "https://a.example"), ("Access-Control-Request-Method", "PUT")]
    app = limited()
    assert statuses(app, [http(method="OPTIONS", headers=preflight)] * 5) == [200] * 5
    # Half a preflight is a request like any other.
    halves = [http(method="OPTIONS", headers=[pair]) for pair in preflight]
    others = [http(method="OPTIONS"), http(headers=preflight)]
    assert statuses(app, halves + others) == [200, 200, 429, 429]


def test_other_scopes_pass_untouched():
    seen = []

    async def app(*triple):
        seen.append(triple)

    scope, receive, send = {"type": "lifespan"}, object(), object()
    asyncio.run(limited(app, limits=["0/minute"])(scope, receive, send))
    assert seen == [(scope, receive, send)]
    assert seen[0][0] is scope


def test_what_the_application_raises_is_raised():
    async def broken(scope, receive, send):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call(limited(broken))


def test_informational_answers_and_other_messages_are_untouched():
    messages = [
        {"type": "http.response.debug", "info": {}},
        {"type": "http.response.early_hint", "links": [b"</a.css>"]},
        {"type": "http.response.start", "status": 103, "headers": []},
        {"type": "http.response.start", "status": 204},
        {"type": "http.response.body", "body": b"", "more_body": True},
        {"type": "http.response.pathsend", "path": "/a"},
        {"type": "http.response.trailers", "headers": []},
    ]

    async def app(scope, receive, send):
        for message in messages:
            await send(message)

    sent = call(limited(app))
    assert "x-ratelimit-limit" in headers(sent[3])
    assert messages[3] == {"type": "http.response.start", "status": 204}, "not changed in place"
    kept = [index for index in range(len(messages)) if index != 3]
    assert all(sent[index] is messages[index] for index in kept)


def test_headers_may_be_any_iterable_of_pairs():
    async def app(scope, receive, send):
        pairs = ([bytearray(b"x-app"), memoryview(b"1")] for _ in range(1))
        await send({"type": "http.response.start", "status": 200, "headers": pairs})

    assert headers(call(limited(app))[0])["x-app"] == "1"


class TestTwoInOneStack:
    def stack(self, outer, inner):
        return limited(limited(limits=[inner]), limits=[outer])

    @pytest.mark.parametrize(
        ("outer", "inner"), [("20/minute", "2/minute"), ("2/minute", "20/minute")]
    )
    def test_each_field_is_there_once_and_the_tighter_wins(self, outer, inner):
        start, _ = call(self.stack(outer, inner))
        assert headers(start)["x-ratelimit-limit"] == "2"
        assert headers(start)["x-ratelimit-remaining"] == "1"

    def test_a_refusal_from_within_keeps_its_fields_and_the_outer_charge_stays(self):
        store = limiter()
        outer = Limit("3/minute", algorithm="fixed-window", name="outer")
        app = limited(limited(limits=["0/minute"]), limits=[outer], limiter=store)
        for _ in range(3):
            start, _ = call(app)
            assert start["status"] == 429
            assert headers(start)["x-ratelimit-limit"] == "0"
        start, body = call(app)
        assert headers(start)["x-ratelimit-limit"] == "3"
        assert json.loads(body["body"])["violated-policies"] == ["outer"]

    def test_fields_that_an_application_sets_by_itself_are_there_once_too(self):
        async def app(scope, receive, send):
            pairs = [(b"X-RateLimit-Limit", b"x"), (b"X-RateLimit-Limit", b"y"), (b"x-app", b"1")]
            await send({"type": "http.response.start", "status": 200, "headers": pairs})

        assert headers(call(limited(app))[0])["x-ratelimit-limit"] == "2"


class TestWebSockets:
    def scope(self, **more):
        scope = http() | {"type": "websocket"} | more
        del scope["method"]
        return scope

    async def chat(self, scope, receive, send):
        await send({"type": "websocket.accept", "headers": [(b"x-app", b"1")]})
        await send({"type": "websocket.send", "text": "hello"})

    def test_an_accepted_upgrade_carries_the_fields(self):
        accept, message = call(limited(self.chat), self.scope())
        assert headers(accept)["x-ratelimit-remaining"] == "1"
        assert message == {"type": "websocket.send", "text": "hello"}

    def test_a_refused_upgrade_is_a_429_where_the_server_can(self):
        scope = self.scope(extensions={"websocket.http.response": {}})
        start, body = call(limited(self.chat, limits=["0/minute"]), scope)
        assert start["type"] == "websocket.http.response.start"
        assert start["status"] == 429
        assert headers(start)["content-type"] == "application/problem+json"
        assert body["type"] == "websocket.http.response.body"
        assert json.loads(body["body"])["status"] == 429

    @pytest.mark.parametrize("more", [{}, {"extensions": None}, {"extensions": {}}])
    def test_and_is_closed_before_it_is_accepted_elsewhere(self, more):
        (close,) = call(limited(self.chat, limits=["0/minute"]), self.scope(**more))
        assert close["type"] == "websocket.close"
        assert close["code"] == 1008

    def test_an_answer_of_the_applications_own_carries_the_fields(self):
        async def denying(scope, receive, send):
            await send({"type": "websocket.http.response.start", "status": 401, "headers": []})

        (start,) = call(limited(denying), self.scope())
        assert headers(start)["x-ratelimit-remaining"] == "1"


class Down:
    """A store that does not answer."""

    secret = b"s"

    def space(self, *_):
        return self

    def decide(self, *_):
        raise StoreUnavailable

    def close(self):
        pass


def test_a_store_that_is_down_lets_pass_or_refuses_as_the_limiter_says():
    start, _ = call(limited(limiter=AsyncLimiter(Down())))
    assert headers(start) == {"x-app": "1"}
    start, _ = call(limited(limiter=AsyncLimiter(Down(), on_store_failure="closed")))
    assert start["status"] == 503
    assert headers(start)["retry-after"] == "1"


def test_a_refusal_is_logged_without_the_key(caplog):
    call(limited(limits=[Limit("0/minute", name="login")]))
    (record,) = caplog.records
    assert record.name == "noria"
    assert record.levelno == logging.WARNING
    assert record.limit == "login"
    assert "203.0.113.9" not in record.getMessage()


def test_the_default_limiter_is_on_the_store_of_the_environment(monkeypatch):
    monkeypatch.setenv("NORIA_STORE_URL", "memory://shared-by-name")
    first, second = (RateLimitMiddleware(hello, limits=["1/hour"]) for _ in range(2))
    assert statuses(first, [http()]) + statuses(second, [http()]) == [200, 429]
    monkeypatch.setenv("NORIA_STORE_URL", "nowhere://")
    with pytest.raises(ConfigError, match="nowhere"):
        RateLimitMiddleware(hello, limits=["1/hour"])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"limits": None}, "limits None"),
        ({"limits": []}, r"limits \[\]"),
        ({"limits": "100/minute"}, "limits '100/minute'"),
        ({"limits": ["100/fortnight"]}, "100/fortnight"),
        ({"limits": [100]}, "limit 100"),
        ({"limits": [Limit("1/s", name="a"), Limit("2/s", name="a")]}, "two different limits"),
        ({"config": "noria.toml"}, "not in this version"),
        ({"facts": dict}, "not in this version"),
        ({"only": ["login"]}, "not in this version"),
        ({"key": "user"}, "key 'user'"),
        ({"limiter": Limiter()}, "expected an AsyncLimiter"),
        ({"limiter": "memory://"}, "expected an AsyncLimiter"),
        ({"app": None}, "app None"),
    ],
)
def test_mistakes_show_when_the_application_starts(options, named):
    arguments = {"app": hello, "limits": ["1/s"]} | options
    with pytest.raises(ConfigError, match=named):
        RateLimitMiddleware(**arguments)


def test_the_module_loads_only_the_standard_library():
    program = (
        "import sys; before = set(sys.modules); import noria.asgi; "
        "print('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = run.stdout.split()
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"noria"}
    assert "noria.cli" not in loaded


def test_decisions_for_many_requests_at_once_hold_the_limit():
    app = limited(limits=["10/hour"])

    async def storm():
        async def one():
            sent = []

            async def send(message):
                sent.append(message)

            await app(http(), None, send)
            return sent[0]["status"]

        return await asyncio.gather(*(one() for _ in range(200)))

    assert sorted(asyncio.run(storm())) == [200] * 10 + [429] * 190
