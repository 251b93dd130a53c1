"""The ASGI middleware: decide before the application is called, say so in every answer.

Pure ASGI: it looks at the scope and adds header fields to the first message of an answer. It reads
no body, buffers none and starts no task, so streams, uploads, background work and cancellation are
what they are without it. A refused request never reaches the application.

    from noria.asgi import RateLimitMiddleware
    app = RateLimitMiddleware(app, limits=["100/minute"])

Browsers hide an answer without CORS fields from a page, so put a CORS middleware outside this one.
"""

from __future__ import annotations

from inspect import isawaitable

from noria.core.plan import plan
from noria.identity import client_address
from noria.limiter import AsyncLimiter
from noria.model.errors import ConfigError, UsageError
from noria.model.limit import as_limit
from noria.model.rate import shown
from noria.responses import NAMES, Journal, fields, outranks, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
    from typing import Any, TypeAlias

    from noria.model.decision import Decision
    from noria.model.limit import Limit

    Scope: TypeAlias = MutableMapping[str, Any]
    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
    Key: TypeAlias = Callable[[Scope], str | Awaitable[str | None] | None]
    Fields: TypeAlias = list[tuple[str, str]]
    RawFields: TypeAlias = Iterable[tuple[bytes, bytes]]

_DENIAL = "websocket.http.response"
_POLICY_VIOLATION = 1008
_STARTS = frozenset({"http.response.start", "websocket.accept", f"{_DENIAL}.start"})
_OURS = frozenset(name.lower().encode() for name in NAMES)
_TELLING = _OURS | {b"retry-after"}


class RateLimitMiddleware:
    """Limits the HTTP requests and WebSocket upgrades of an ASGI application.

    - `limits`: rate texts or `Limit`s; a request is charged to all of them, or refused.
    - `key`: a callable, plain or async, from the scope to the text by which requests are counted,
      or to None, which exempts a request. Without it requests count by the client's address, as the
      server gives it in `scope["client"]`: IPv6 by /64, and all callers without an address as one.
    - `limiter`: an `AsyncLimiter`, which stays the caller's to close; without one there is one on
      `NORIA_STORE_URL`, else on `memory://`, which other processes do not see.

    A refused request is answered 429 (503 where the store is down and the limiter is closed) with
    `Retry-After`; a refused upgrade likewise where the server can, else it is closed before it is
    accepted, which servers turn into their 403. A CORS preflight costs nothing. Where two of these
    stand in one stack, each field is in an answer once, that of the tighter limit, and what the
    outer one charged stays charged when the inner one refuses.

    Policy files come in a later version: `config`, `facts` and `only` raise `ConfigError`, as does
    anything wrong with the rest. What `key` raises, and `UsageError` for a key that is empty or no
    text, is a mistake in the program and goes on to the server.
    """

    def __init__(  # noqa: PLR0913
        self,
        app: App,
        config: object = None,
        *,
        limits: Sequence[Limit | str] | None = None,
        key: Key | None = None,
        facts: object = None,
        limiter: AsyncLimiter | None = None,
        only: object = None,
    ) -> None:
        for name, value in (("config", config), ("facts", facts), ("only", only)):
            if value is not None:
                raise ConfigError(f"{name} {shown(value)}: policy files are not in this version")
        if not callable(app):
            raise ConfigError(f"app {shown(app)}: expected an ASGI application")
        if key is not None and not callable(key):
            raise ConfigError(
                f"key {shown(key)}: expected a callable from the scope to a text or None"
            )
        self._app = app
        self._limits = _checked_limits(limits)
        self._key = key
        self._limiter = _checked_limiter(limiter)
        self._journal = Journal()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        key = await self._key_of(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        decision = await self._limiter.consume(key, *self._limits)
        if decision.allowed:
            await self._app(scope, receive, _telling(send, fields(decision)))
        else:
            self._journal.refused(decision, key)
            await _refuse(scope, decision, send)

    async def _key_of(self, scope: Scope) -> str | None:
        """What a request counts under; None where it costs nothing."""
        if scope["type"] not in ("http", "websocket") or _is_preflight(scope):
            return None
        if self._key is None:
            return client_address(scope.get("client"))
        key = self._key(scope)
        return await key if isawaitable(key) else key


def _checked_limits(limits: Sequence[Limit | str] | None) -> tuple[Limit, ...]:
    """Limits that `consume` takes, tried here so that a mistake shows at start-up."""
    if not isinstance(limits, (list, tuple)) or not limits:
        raise ConfigError(f'limits {shown(limits)}: expected a list such as ["100/minute"]')
    try:
        plan("checked", limits, 1, charge=False)
    except UsageError as error:
        raise ConfigError(f"limits: {error}") from None
    return tuple(map(as_limit, limits))


def _checked_limiter(limiter: object) -> AsyncLimiter:
    if limiter is None:
        return AsyncLimiter()
    if not isinstance(limiter, AsyncLimiter):
        raise ConfigError(f"limiter {shown(limiter)}: expected an AsyncLimiter")
    return limiter


def _is_preflight(scope: Scope) -> bool:
    """A question that browsers ask of their own accord before a request of another origin."""
    if scope.get("method") != "OPTIONS":
        return False
    names = {name.lower() for name, _ in scope["headers"]}
    return b"origin" in names and b"access-control-request-method" in names


def _telling(send: Send, ours: Fields) -> Send:
    """`send`, adding our fields to the message that starts the answer."""
    if not ours:
        return send

    async def tell(message: Message) -> None:
        # An informational answer (1xx) is not yet the answer.
        if message["type"] in _STARTS and message.get("status", 200) >= 200:  # noqa: PLR2004
            message = {**message, "headers": _merged(message.get("headers") or (), ours)}
        await send(message)

    return tell


def _merged(present: RawFields, ours: Fields) -> list[tuple[bytes, bytes]]:
    headers = [(bytes(name), bytes(value)) for name, value in present]
    theirs = {
        name.lower().decode(): value.decode("latin-1")
        for name, value in headers
        if name.lower() in _TELLING
    }
    if theirs:
        if not outranks(ours, theirs):
            ours = [(name, theirs[name.lower()]) for name in NAMES]
        headers = [field for field in headers if field[0].lower() not in _OURS]
    return headers + _raw(ours)


def _raw(named: Fields) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in named]


async def _refuse(scope: Scope, decision: Decision, send: Send) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        if _DENIAL not in (scope.get("extensions") or {}):
            await send(
                {"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "rate limited"}
            )
            return
        kind = _DENIAL
    accept = [value for name, value in scope["headers"] if name.lower() == b"accept"]
    status, named, body = refusal(
        decision, b",".join(accept).decode("latin-1"), scope.get("method", "GET")
    )
    await send({"type": f"{kind}.start", "status": status, "headers": _raw(named)})
    await send({"type": f"{kind}.body", "body": body})
