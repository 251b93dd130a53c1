"""The application that the real servers run: every shape of answer, behind the middleware."""

# ruff: noqa: ARG001 - an application takes three arguments, whatever it needs

import asyncio
import json
import os

from noria import AsyncLimiter, Limit
from noria.asgi import RateLimitMiddleware

BIG = bytes(range(256)) * 8192
"""Two megabytes."""


async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        await send({"type": "websocket.close"})
    elif scope["type"] == "http":
        await ANSWERS.get(scope["path"], plain)(receive, send)


async def begin(send, status=200, **headers):
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def part(send, body, *, more=False):
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def plain(receive, send):
    body = json.dumps({"pid": os.getpid()}).encode()
    await begin(send, content_type="application/json", content_length=str(len(body)))
    await part(send, body)


async def chunks(receive, send):
    await begin(send)
    for body in (b"one,", b"two,"):
        await part(send, body, more=True)
    await part(send, b"three")


async def static(receive, send):
    await begin(send, content_length=str(len(BIG)))
    await part(send, BIG)


async def no_content(receive, send):
    await begin(send, 204)
    await part(send, b"")


async def not_modified(receive, send):
    await begin(send, 304, etag='"a"')
    await part(send, b"")


async def head(receive, send):
    await begin(send, content_length="5")
    await part(send, b"")


async def upload(receive, send):
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = str(size).encode()
    await begin(send, content_length=str(len(body)))
    await part(send, body)


gates: list[asyncio.Event] = []


async def events(receive, send):
    """The second event is sent once /open has been asked for."""
    gate = asyncio.Event()
    gates.append(gate)
    await begin(send, content_type="text/event-stream")
    await part(send, b"data: first\n\n", more=True)
    await gate.wait()
    await part(send, b"data: second\n\n")


async def open_gates(receive, send):
    for gate in gates:
        gate.set()
    await plain(receive, send)


async def broken(receive, send):
    raise ZeroDivisionError


ANSWERS = {
    "/chunks": chunks,
    "/static": static,
    "/204": no_content,
    "/304": not_modified,
    "/head": head,
    "/upload": upload,
    "/events": events,
    "/open": open_gates,
    "/broken": broken,
}


def key(scope):
    """Each test is a caller of its own; /free is exempt."""
    if scope["path"] == "/free":
        return None
    return next(value.decode() for name, value in scope["headers"] if name == b"x-caller")


def create_app():
    limiter = AsyncLimiter()
    inner = RateLimitMiddleware(
        app, limits=[Limit("10/hour", name="inner")], key=key, limiter=limiter
    )
    return RateLimitMiddleware(inner, limits=["1000/day"], key=key, limiter=limiter)


def create_app_by_address():
    return RateLimitMiddleware(app, limits=["2/hour"])
