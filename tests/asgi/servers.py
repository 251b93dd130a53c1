"""Real servers on loopback, started for a test and ended by their process id."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SERVERS = {
    "uvicorn": ["--factory", "--no-proxy-headers", "--log-level", "warning"],
    # A worker that is told to end while it still starts does not hear it.
    "granian": [
        *("--factory", "--interface", "asginl", "--log-level", "warning"),
        *("--workers-kill-timeout", "1"),
    ],
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Running:
    """A server that answers."""

    def __init__(self, port):
        self.port = port

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def ask(self, path="/", caller="", method="GET", body=None, headers=()):
        """(status, headers, body) over a connection of its own."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(
                method, path, body=body, headers=dict(headers) | {"x-caller": caller}
            )
            response = connection.getresponse()
            pairs = [(name.lower(), value) for name, value in response.getheaders()]
            names = [name for name, _ in pairs if name.startswith(("x-ratelimit", "retry"))]
            assert sorted(names) == sorted(set(names)), "each field once"
            return response.status, dict(pairs), response.read()

    def answers(self, process):
        """Wait until it does, or has ended."""
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.ask("/free")
                return
            time.sleep(0.02)
        raise AssertionError("the server did not start")


@contextlib.contextmanager
def running(server, target, store, workers=1):
    port = free_port()
    command = [sys.executable, "-m", server, f"served:{target}", *SERVERS[server]]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--workers", str(workers)],
        env=os.environ | {"PYTHONPATH": str(HERE), "NORIA_STORE_URL": store},
    )
    try:
        found = Running(port)
        found.answers(process)
        yield found
    finally:
        process.terminate()
        process.wait(20)
