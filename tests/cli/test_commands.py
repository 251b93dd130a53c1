"""The commands: what they print, and one clean line where something is wrong."""

import json
import subprocess
import sys

import pytest

from noria import Limit, Limiter, __version__
from noria.cli.commands import run


@pytest.fixture
def noria(capsys, monkeypatch):
    """Run a command line in this process: (exit code, stdout, stderr)."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["noria", *arguments])
        with pytest.raises(SystemExit) as end:
            run()
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return command


@pytest.fixture
def store(tmp_path, monkeypatch):
    url = f"shared://{tmp_path}/store?size=16MB"
    monkeypatch.setenv("NORIA_STORE_URL", url)
    return url


def test_the_version_is_the_packages(noria):
    assert noria("--version") == (0, f"noria {__version__}\n", "")


@pytest.mark.parametrize("entry", [["-m", "noria"], ["-c", "from noria.cli import main; main()"]])
def test_the_command_runs_as_a_module_too(entry):
    run = subprocess.run(
        [sys.executable, *entry, "--version"], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"noria {__version__}\n"


def test_help_names_the_commands(noria):
    code, out, _ = noria("--help")
    assert code == 0
    assert all(name in out for name in ("demo", "peek", "reset", "serve"))


@pytest.mark.parametrize("later", ["serve", "check", "profile"])
def test_a_command_of_a_later_version_says_so(noria, later):
    assert noria(later, "--help") == (2, "", f"noria: {later}: not in this version\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["peek", "k", "--limit", "5/fortnight"], "5/fortnight"),
        (["peek", "k", "--limit", "5/s", "--algorithm", "guess"], "guess"),
        (["peek", "k", "--limit", "5/s", "--store", "nowhere://"], "nowhere"),
        (["peek", "k", "--limit", "5/s", "--store", "memory://"], "memory://"),
        (["peek", "", "--limit", "5/s"], "key ''"),
        (["peek", "k"], "--limit"),
        (["reset", "k", "--namespace", ""], "namespace"),
        (["demo", "--store", "memory://"], "2 workers"),
        (["demo", "--store", "nowhere://"], "nowhere"),
        (["demo", "--workers", "0"], "--workers"),
        (["nothing"], "nothing"),
    ],
)
@pytest.mark.usefixtures("store")
def test_a_mistake_is_named_on_stderr_with_exit_code_2(noria, arguments, named):
    code, out, err = noria(*arguments)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


def test_peek_shows_what_is_left_and_charges_nothing(noria, store):
    with Limiter(store) as limiter:
        limiter.consume("user:42", "5/hour", cost=2)
    for _ in range(2):
        code, out, _ = noria("peek", "user:42", "--limit", "5 per hour", "--json")
        document = json.loads(out)
        assert (code, document["remaining"], document["limit"]) == (0, 3, 5)
    code, out, _ = noria("peek", "user:42", "--limit", "5/hour")
    assert code == 0
    assert "5/hour" in out
    assert "passes" in out


def test_peek_finds_the_limit_by_all_that_makes_it(noria, store):
    limit = Limit("5/hour", algorithm="token-bucket", burst=2, name="login")
    with Limiter(store, namespace="other") as limiter:
        limiter.consume("k", limit, cost=2)
    options = ("--algorithm", "gcra", "--burst", "2", "--name", "login", "--namespace", "other")
    code, out, _ = noria("peek", "k", "--limit", "5/hour", *options)
    assert code == 0
    assert "burst 2" in out
    assert "passes in" in out
    assert json.loads(noria("peek", "k", "--limit", "5/hour", "--json")[1])["remaining"] == 5


def test_peek_says_never(noria, store):
    assert "never passes" in noria("peek", "k", "--limit", "0/hour", "--store", store)[1]


def test_reset_forgets_one_limit_or_all_of_a_key(noria, store):
    with Limiter(store) as limiter:
        for rate in ("5/hour", "7/hour", "9/hour"):
            limiter.consume("k", rate)
    assert noria("reset", "k", "--limit", "5/hour")[:2] == (0, "1 count of 'k' forgotten\n")
    assert noria("reset", "k", "--json")[:2] == (0, '{"reset": 2}\n')
    assert noria("reset", "k")[:2] == (0, "0 counts of 'k' forgotten\n")


@pytest.mark.parametrize("missing", ["granian", "lmdb"])
def test_the_demo_names_the_extra_it_needs(noria, monkeypatch, missing):
    monkeypatch.setattr(
        "noria.cli.commands.find_spec", lambda name: None if name == missing else object()
    )
    code, _, err = noria("demo", "--once")
    assert code == 2
    assert 'pip install "noria[service]"' in err
    assert err.count("\n") == 1
