"""The demo's server, a child process: a free port, a start that is awaited, an end that is sure."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from noria.cli.sample import NAMESPACE
from noria.model.errors import ConfigError
from noria.stores import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

_STARTING = 20.0
_STOPPING = 5.0
_PORTS_TO_TRY = 100


class DemoError(Exception):
    """The demo did not show what it should have; the text says what."""


class Answer(NamedTuple):
    """What came back, and from which worker."""

    status: int
    reason: str
    headers: dict[str, str]
    body: Any

    @property
    def worker(self) -> str:
        """The worker's process id."""
        return self.headers.get("x-worker", "?")

    @property
    def retry_after(self) -> int:
        """Seconds; 0 where the answer has none."""
        return int(self.headers.get("retry-after", "0"))


class Server(NamedTuple):
    """A running sample API."""

    port: int
    store: str
    workers: list[str]
    process: subprocess.Popen[bytes]

    def get(self, path: str, caller: str = "") -> Answer:
        """One request over a connection of its own, so that any worker may get it."""
        return _get(self.port, path, caller)


@contextmanager
def serving(port: int, workers: int, store: str | None) -> Generator[Server]:
    """The sample API in `workers` processes, ended on leaving, with all that it wrote."""
    with TemporaryDirectory(prefix="noria-demo-") as folder:
        url = store or f"shared://{folder}/store?size=16MB"
        if workers > 1 and url.startswith("memory:"):
            raise ConfigError(
                f"store {url}: {workers} workers would each have their own; use shared://"
            )
        # A wrong URL is told here, and not by a server that does not start.
        open_store(url).close()
        port = _free(port)
        log = Path(folder) / "server.log"
        process = _start(port, workers, url, log)
        try:
            seen = await_workers(process, port, workers, log)
            yield Server(port, url, seen, process)
        finally:
            _stop(process)


def _free(wanted: int) -> int:
    for port in range(wanted, min(wanted + _PORTS_TO_TRY, 65536)) if wanted else (0,):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise ConfigError(f"port {wanted}: it and those after it are taken; try --port 0")


def _start(port: int, workers: int, url: str, log: Path) -> subprocess.Popen[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRANIAN_")}
    # A namespace of its own: a store that is given may hold counts of an earlier demo.
    ours = {"NORIA_STORE_URL": url, NAMESPACE: f"demo-{os.getpid()}-{time.time_ns()}"}
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "noria.cli.sample", str(port), str(workers)],
            env=kept | ours,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for this process, which then ends that one.
            start_new_session=True,
        )


def await_workers(
    process: subprocess.Popen[bytes], port: int, workers: int, log: Path
) -> list[str]:
    """Ask until all workers have answered; their process ids."""
    seen: set[str] = set()
    deadline = time.monotonic() + _STARTING
    while len(seen) < workers:
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip()
            raise DemoError(f"the server did not start on port {port}. It said:\n{said}")
        try:
            seen.add(_get(port, "/").worker)
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
    return sorted(seen)


def _get(port: int, path: str, caller: str = "") -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers={"x-caller": caller} if caller else {})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, response.reason, headers, json.loads(response.read()))
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and its workers. An impatient second Ctrl-C must not leave them behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.terminate()
        try:
            process.wait(_STOPPING)
        except subprocess.TimeoutExpired:
            # Its session holds itself and its workers, and nothing else.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
    finally:
        signal.signal(signal.SIGINT, before)
