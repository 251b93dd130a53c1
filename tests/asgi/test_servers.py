"""The middleware on real servers: every answer is whole, carries its fields, and limits hold."""

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import BIG
from servers import SERVERS, running

FIELDS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")


@pytest.fixture(scope="session", params=sorted(SERVERS))
def server(request):
    """One worker of each server, with an hour's limit of 10 for each caller."""
    with running(request.param, "create_app", "memory://") as found:
        yield found


@pytest.fixture
def caller(request):
    """A caller that no other test is."""
    return request.node.nodeid


def checked(answer, remaining):
    """An answer that passed, its fields whole numbers, as (headers, body)."""
    status, headers, body = answer
    assert status < 400
    assert all(headers[name].isdigit() for name in FIELDS)
    assert headers["x-ratelimit-limit"] == "10"
    assert headers["x-ratelimit-remaining"] == str(remaining)
    assert "retry-after" not in headers
    return headers, body


def use_up(server, caller):
    for left in range(9, -1, -1):
        checked(server.ask(caller=caller), left)


def test_a_caller_is_refused_once_the_limit_is_used_up(server, caller):
    use_up(server, caller)
    status, headers, body = server.ask(caller=caller)
    problem = json.loads(body)
    assert status == problem["status"] == 429
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    assert headers["retry-after"] == str(problem["retry_after"])
    assert all(headers[name].isdigit() for name in (*FIELDS, "retry-after"))
    assert problem["violated-policies"] == ["inner"]


def test_a_stream_of_three_chunks_arrives_whole(server, caller):
    headers, body = checked(server.ask("/chunks", caller), 9)
    assert body == b"one,two,three"
    assert "content-length" not in headers


def test_a_big_body_arrives_whole(server, caller):
    headers, body = checked(server.ask("/static", caller), 9)
    assert headers["content-length"] == str(len(BIG))
    assert body == BIG


def test_an_upload_reaches_the_application_whole(server, caller):
    _, body = checked(server.ask("/upload", caller, "POST", BIG), 9)
    assert body == str(len(BIG)).encode()


def test_a_first_event_is_not_held_back(server, caller):
    with contextlib.closing(server.connect()) as connection:
        connection.request("GET", "/events", headers={"x-caller": caller})
        response = connection.getresponse()
        # The application sends the second event only after the first has been read here.
        assert response.read1(1024) == b"data: first\n\n"
        server.ask("/open", caller)
        assert response.read() == b"data: second\n\n"


@pytest.mark.parametrize(("path", "status"), [("/204", 204), ("/304", 304)])
def test_answers_without_a_body_stay_so(server, caller, path, status):
    answer = server.ask(path, caller)
    _, body = checked(answer, 9)
    assert (answer[0], body) == (status, b"")


def test_head_has_the_headers_and_no_body_refused_or_not(server, caller):
    headers, body = checked(server.ask("/head", caller, "HEAD"), 9)
    assert (headers["content-length"], body) == ("5", b"")
    for _ in range(9):
        server.ask(caller=caller)
    with contextlib.closing(server.connect()) as connection:
        # A body after all would be taken for the start of the second answer.
        for method in ("HEAD", "GET"):
            connection.request(method, "/", headers={"x-caller": caller})
            response = connection.getresponse()
            body = response.read()
            assert response.status == 429
            assert bool(body) == (method == "GET")
            length = int(response.headers["content-length"])
            assert length > 0
    assert length == len(body)


def test_a_refused_upload_is_answered_without_being_read(server, caller):
    use_up(server, caller)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        lines = (
            "POST /upload HTTP/1.1",
            "Host: localhost",
            f"X-Caller: {caller}",
            "Content-Length: 1000000000",
        )
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 429 ")


def test_an_exempt_request_is_not_counted_and_has_no_fields(server):
    for _ in range(12):
        status, headers, _ = server.ask("/free")
        assert status == 200
        assert not set(FIELDS) & set(headers)


def test_a_preflight_is_free(server, caller):
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
    for _ in range(12):
        assert server.ask(caller=caller, method="OPTIONS", headers=preflight)[0] == 200
    checked(server.ask(caller=caller), 9)


def test_a_fault_of_the_application_is_the_servers_to_answer(server, caller):
    status, headers, _ = server.ask("/broken", caller)
    assert status == 500
    assert "x-ratelimit-limit" not in headers
    checked(server.ask(caller=caller), 8)


def test_parallel_requests_on_one_worker_hold_the_limit(server, caller):
    assert storm(server, caller, 40) == 10


def at_once(server, path, caller, requests):
    """The answers to so many requests, all sent at one moment."""
    together = threading.Barrier(requests)

    def ask(_):
        together.wait(10)
        return server.ask(path, caller)

    with ThreadPoolExecutor(requests) as pool:
        return list(pool.map(ask, range(requests)))


def storm(server, caller, requests):
    """How many of so many requests passed."""
    statuses = [answer[0] for answer in at_once(server, "/", caller, requests)]
    assert set(statuses) == {200, 429}
    return statuses.count(200)


def workers_of(server):
    """The processes that answer, once there are several."""
    seen = set()
    deadline = time.monotonic() + 20
    while len(seen) < 2 and time.monotonic() < deadline:
        seen |= {body for _, _, body in at_once(server, "/free", "", 20)}
    return seen


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_four_processes_let_exactly_ten_of_eighty_parallel_requests_pass(name, tmp_path, caller):
    with running(name, "create_app", f"shared://{tmp_path}/store?size=16MB", workers=4) as server:
        assert len(workers_of(server)) > 1
        assert [storm(server, f"{caller}-{turn}", 80) for turn in range(3)] == [10, 10, 10]


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_caller_cannot_change_its_address_by_a_header(name):
    with running(name, "create_app_by_address", "memory://") as server:
        headers = [{"X-Forwarded-For": f"198.51.100.{number}"} for number in range(3)]
        statuses = [server.ask(headers=each)[0] for each in headers]
    # The first request of all was the one that found the server ready.
    assert statuses == [200, 429, 429]


@pytest.mark.parametrize("server", ["granian"], indirect=True)
def test_a_websocket_is_refused_with_a_429_before_it_is_accepted(server, caller):
    lines = (
        "GET /chat HTTP/1.1",
        "Host: localhost",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"X-Caller: {caller}",
    )

    def upgrade():
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall("\r\n".join((*lines, "", "")).encode())
            return connection.recv(4096).decode("latin-1")

    answers = [upgrade() for _ in range(11)]
    assert all(answer.startswith("HTTP/1.1 101 ") for answer in answers[:10])
    assert answers[10].startswith("HTTP/1.1 429 ")
    assert "\r\nretry-after: " in answers[10].lower()
