"""The demo: it ends well by itself, by Ctrl-C and by the end of its parent, and leaves nothing."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from noria.cli import demo
from noria.cli.server import DemoError, await_workers

COMMAND = [sys.executable, "-m", "noria", "demo"]


@pytest.fixture
def scratch(tmp_path):
    """Where the demo keeps its files; empty again after it."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def environment(scratch):
    return os.environ | {"TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}


def start(scratch, *options):
    """A demo whose output is read, as (process, all lines up to the wanted one)."""
    return subprocess.Popen(
        [*COMMAND, *options],
        env=environment(scratch),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(process, wanted):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if wanted in line:
            return "".join(lines)
    raise AssertionError("".join(lines))


def workers_in(output):
    return [int(pid) for pid in re.search(r"worker processes \((.*)\)", output)[1].split(", ")]


def gone(pids):
    """Whether the processes end; they are reaped by the server that started them."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.02)
    return False


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_shows_that_one_limit_holds_over_two_workers_and_ends(scratch):
    run = subprocess.run(
        [*COMMAND, "--once", "--port", "0"],
        env=environment(scratch),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "10 of 14 passed, the limit is 10" in run.stdout
    assert "10 of 40 passed, the limit is 10" in run.stdout
    assert "refused before that, let in when it was over" in run.stdout
    assert "\x1b[" not in run.stdout, "no colours where there is no terminal"
    workers = workers_in(run.stdout)
    assert len(set(workers)) == 2
    assert gone(workers)


def test_a_limit_that_does_not_hold_is_said_with_exit_code_1(scratch):
    program = (
        "from noria import Limit; from noria.cli import demo, main; "
        "demo.HELLO = Limit('11/minute'); main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, "demo", "--once", "--port", "0"],
        env=environment(scratch),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith("noria: demo: not what the limit promises: 10 of 14 passed")


def test_a_server_that_does_not_start_is_quoted(tmp_path):
    log = tmp_path / "log"
    log.write_text("no such thing")
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as process:
        process.wait(20)
        with pytest.raises(DemoError, match=r"port 1\. It said:\nno such thing"):
            await_workers(process, 1, 1, log)


def test_one_worker_needs_no_shared_store(scratch):
    with start(scratch, "--port", "0", "--workers", "1", "--store", "memory://") as process:
        read_until(process, "ok  10 of 14 passed")
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 0


def test_ctrl_c_ends_the_lasting_demo_and_its_workers(scratch):
    with start(scratch, "--port", "0") as process:
        output = read_until(process, "Ctrl-C ends it.")
        workers = workers_in(output)
        port = int(re.search(r"127\.0\.0\.1:(\d+)", output)[1])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().strip().endswith("what it started with it.")
    assert process.returncode == 0
    assert gone(workers)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_ctrl_c_in_the_middle_leaves_nothing_and_shows_no_traceback(scratch):
    with start(scratch, "--port", "0", "--once") as process:
        workers = workers_in(read_until(process, "worker processes"))
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stdout.read()
    assert process.returncode == 130
    assert gone(workers)


def test_the_workers_end_with_a_demo_that_is_killed(tmp_path):
    with start(tmp_path, "--port", "0") as process:
        workers = workers_in(read_until(process, "worker processes"))
        process.kill()
    assert gone(workers)


def test_a_port_that_is_taken_is_passed_over(scratch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with start(scratch, "--port", str(port), "--once") as process:
            output = read_until(process, "worker processes")
            process.send_signal(signal.SIGINT)
            process.stdout.read()
    assert port < int(re.search(r"127\.0\.0\.1:(\d+)", output)[1]) < port + 100


def test_the_demo_leaves_signal_handlers_as_they_were():
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in ending]
    with demo._ended_by_signals():
        assert signal.getsignal(signal.SIGTERM) == signal.default_int_handler
    assert [signal.getsignal(number) for number in ending] == before
