"""The demo's API: two limited paths, in as few lines as it takes, and the server that runs it.

It is served by several processes. An answer names the one it came from in `x-worker`, so that the
demo can show that they keep one limit together.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from threading import Thread

from noria import AsyncLimiter, Limit
from noria.asgi import RateLimitMiddleware
from noria.identity import client_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.asgi import App, Key, Message, Receive, Scope, Send

HELLO = Limit("10/minute", name="hello")
LOGIN = Limit("3/3s", algorithm="sliding-window-log", name="login")
NAMESPACE = "NORIA_DEMO_NAMESPACE"

_ANSWERS = {"/": "ready", "/hello": "Hello!", "/login": "Welcome."}


def create_app() -> App:
    """The API behind its limits; the store is the one that `NORIA_STORE_URL` names."""
    limiter = AsyncLimiter(namespace=os.environ.get(NAMESPACE, "demo"))
    app: App = api
    for path, limit in (("/hello", HELLO), ("/login", LOGIN)):
        app = RateLimitMiddleware(app, limits=[limit], key=_caller_of(path), limiter=limiter)
    return _signed(app)


async def api(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    """Say hello."""
    text = _ANSWERS.get(scope["path"])
    body = json.dumps({"message": text or "There is nothing here."}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    status = 200 if text else 404
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _caller_of(path: str) -> Key:
    """A key for requests to `path`; others are exempt."""

    def key(scope: Scope) -> str | None:
        if scope["path"] != path:
            return None
        # Anybody can write a header: it is read here so that the demo can play several callers.
        names = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-caller"]
        return names[0] if names and names[0] else client_address(scope["client"])

    return key


def _signed(app: App) -> App:
    worker = (b"x-worker", str(os.getpid()).encode())

    async def signed(scope: Scope, receive: Receive, send: Send) -> None:
        async def sign(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], worker]}
            await send(message)

        await app(scope, receive, sign)

    return signed


def serve(port: int, workers: int) -> None:
    """Serve the API on loopback until a signal, or until the process that started this one ends."""
    from granian.constants import Interfaces
    from granian.server import Server

    Thread(target=_end_with_parent, daemon=True).start()
    Server(
        "noria.cli.sample:create_app",
        factory=True,
        address="127.0.0.1",
        port=port,
        interface=Interfaces.ASGINL,
        workers=workers,
        # A worker that is told to end while it still starts does not hear it.
        workers_kill_timeout=2,
    ).serve()


def _end_with_parent() -> None:
    """Standard input is a pipe that nobody writes to: it ends when the other side is gone."""
    # Not by sys.stdin, whose lock a forked worker would inherit held.
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
