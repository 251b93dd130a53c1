"""Promises about the project as a whole: what it installs, imports and gives away."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "noria"

# In pieces, or this file would be the first to break its own rule.
REGISTRIES = [
    ".".join(labels)
    for labels in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("maven", "org"),
        ("deb", "debian", "org"),
    ]
]
HOME = re.compile(r"(?<![\w.])(?:/home/[\w.-]+/|/Users/[\w.-]+/|/root/|[A-Z]:\\Users\\)")


def project_files():
    """The files in version control and those about to be, as (name, text)."""
    listing = subprocess.run(
        # A clone may belong to somebody else, which git would otherwise refuse to read.
        [
            *("git", "-c", "safe.directory=*", "ls-files", "-z"),
            *("--cached", "--others", "--exclude-standard"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            yield name, path.read_text(encoding="utf-8", errors="replace")


needs_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")


@needs_git
def test_no_file_names_a_package_registry():
    found = [(name, host) for name, text in project_files() for host in REGISTRIES if host in text]
    assert found == []


@needs_git
def test_no_file_names_somebodys_home_folder():
    found = [
        (name, match.group())
        for name, text in project_files()
        if name != "tests/test_house.py"
        for match in HOME.finditer(text)
    ]
    assert found == []


def test_lock_file_has_versions_and_hashes_and_no_addresses():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(?!--hash=sha256:)-", text, re.MULTILINE), "an option of pip"
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==\S+ ", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_import_loads_only_the_standard_library_and_no_asyncio():
    program = (
        "import sys; before = set(sys.modules); import noria; "
        "print('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = run.stdout.split()
    assert "noria" in loaded
    roots = {name.partition(".")[0] for name in loaded}
    assert roots - sys.stdlib_module_names == {"noria"}
    assert "asyncio" not in roots
    assert not {"noria.cli", "noria.testing"}.intersection(loaded)


@pytest.mark.parametrize("floor", ["algorithms", "model", "core"])
def test_the_floors_that_decide_import_no_third_party(floor):
    allowed = sys.stdlib_module_names | {"noria"}
    foreign = [
        (str(path.relative_to(ROOT)), name)
        for path in sorted((SOURCE / floor).rglob("*.py"))
        for name in imported(path)
        if name.partition(".")[0] not in allowed
    ]
    assert foreign == []


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "noria"


def test_the_installed_package_says_that_it_is_typed():
    spec = importlib.util.find_spec("noria")
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "py.typed").is_file()
