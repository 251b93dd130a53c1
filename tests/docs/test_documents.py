"""Promises of the documents: what they name is there, and what they show is what happens."""

import re
import shlex
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import noria
from noria.core.plan import MOST_ENTRIES
from noria.core.transition import MOST_REFUNDS
from noria.stores.memory import tables as memory
from noria.stores.shared import pages, record, records
from noria.stores.shared import store as shared

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ID = re.compile(r'<a id="([^"]+)">')

every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text, language):
    """The code blocks of a language."""
    return [body for name, body in FENCE.findall(text) if name == language]


def prose(path):
    """A document without its code blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path):
    """What a link may point to within a document, as code hosts name headings."""
    text = prose(path)
    headings = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text)]
    return {heading.replace(" ", "-") for heading in headings} | set(ID.findall(text))


@every_document
def test_links_lead_to_files_and_headings_that_exist(path):
    broken = []
    for target in LINK.findall(prose(path)):
        parts = urlsplit(target)
        if parts.scheme:
            continue
        found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not found.exists() or (parts.fragment and parts.fragment not in anchors(found)):
            broken.append(target)
    assert broken == []


@every_document
def test_every_code_block_says_what_it_is(path):
    assert [
        body for name, body in FENCE.findall(path.read_text(encoding="utf-8")) if not name
    ] == []


@every_document
def test_no_python_block_is_spared_from_the_tests(path):
    assert "<!--- skip" not in path.read_text(encoding="utf-8")


def test_every_python_block_is_run_by_the_tests():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "README.md", "docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    collected = Counter(
        line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line
    )
    written = {
        str(path.relative_to(ROOT)): len(blocks(path.read_text(encoding="utf-8"), "python"))
        for path in DOCUMENTS
    }
    missing = [name for name, count in written.items() if collected[name] < count]
    assert missing == []


def test_every_document_can_be_reached_from_the_index():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(prose(index))}
    documents = set((ROOT / "docs").rglob("*.md")) - {index}
    assert documents - linked == set()
    assert "docs/index.md" in LINK.findall(prose(ROOT / "README.md"))


@pytest.mark.parametrize("name", noria.__all__)
def test_every_public_name_is_described_in_the_reference(name):
    text = read("docs/limiter.md")
    assert re.search(rf"^#+ .*\b{name}\b|^\| `{name}` \|", text, re.MULTILINE), name


@pytest.mark.parametrize("owner", [noria.Limiter, noria.AsyncLimiter])
def test_every_method_is_described_in_the_reference(owner):
    text = read("docs/limiter.md")
    methods = [name for name in vars(owner) if not name.startswith("_")]
    assert [name for name in methods if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("owner", [noria.Decision, noria.Outcome])
def test_every_attribute_is_described_in_the_reference(owner):
    described = re.search(
        rf"^## {owner.__name__}$(.*?)(?=^## )", read("docs/limiter.md"), re.MULTILINE | re.DOTALL
    )
    assert described is not None
    slots = [name for name in owner.__slots__ if not name.startswith("_")]
    properties = [name for name, value in vars(owner).items() if isinstance(value, property)]
    missing = [name for name in {*slots, *properties} if f"`{name}`" not in described[1]]
    assert missing == []


@every_document
def test_make_commands_are_targets_of_the_makefile(path):
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"^make (?:[A-Z]+=\S+ )?([a-z]+)", text, re.MULTILINE)
    named += re.findall(r"`make (?:[A-Z]+=\S+ )?([a-z]+)`", text)
    assert set(named) <= targets


@every_document
def test_extras_that_are_named_exist(path):
    project = tomllib.loads(read("pyproject.toml"))["project"]
    named = re.findall(r"noria\[(\w+)\]", path.read_text(encoding="utf-8"))
    assert set(named) <= set(project["optional-dependencies"])


def test_the_sizes_of_stores_that_are_named_are_those_of_the_code():
    text = " ".join(read("docs/stores.md").split())
    for words in (
        f"At most {memory.MAX_ENTRIES:,} entries and about {memory.MAX_BYTES >> 20} MB",
        f"{memory._ENTRY_BYTES} bytes and the size of its key, {memory._LOG_BYTES} bytes for a log",
        f"share overflow records, {memory._SHARED} for each limit",
        f"The file takes {shared.SIZE >> 20} MiB",
        f"takes {record.SLOT.size} bytes in it",
        f"a call in a log {pages._ENTRY.size} (",
        f"share {shared._SHARED} overflow records",
        f"One key can have {records.MOST_SLOTS} live limits",
    ):
        assert words in text, words
    assert f"more than {MOST_REFUNDS} newer charges" in read("docs/limiter.md")
    assert f"Up to {MOST_ENTRIES:,} pairs" in read("docs/limiter.md")


def test_noria_commands_that_are_shown_are_understood():
    commands = {
        line
        for path in DOCUMENTS
        for body in blocks(path.read_text(encoding="utf-8"), "sh")
        for line in body.splitlines()
        if line.startswith("noria ") and "$ " not in body
    }
    assert commands
    for line in commands:
        # With --help a command is looked up and its options are not checked, so check them here.
        command, options = shlex.split(line)[1], re.findall(r" (--[a-z]+)", line)
        help_text = run("noria", command, "--help")
        assert [option for option in options if option not in help_text] == [], line


def test_shell_output_that_is_shown_is_what_is_printed():
    shown = []
    for path in DOCUMENTS:
        for body in blocks(path.read_text(encoding="utf-8"), "sh"):
            shown += re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)+)", body, re.MULTILINE)
    assert shown
    for command, output in shown:
        assert run(*shlex.split(command)) == output


def run(program, *arguments):
    """What a command prints; the `noria` of this interpreter."""
    assert program == "noria"
    done = subprocess.run(
        [sys.executable, "-m", "noria", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_changelog_has_the_current_version():
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert version == noria.__version__
    assert re.search(rf"^## \[{re.escape(version)}\]", read("CHANGELOG.md"), re.MULTILINE)


def test_the_first_screen_of_the_readme_has_the_two_commands_and_the_picture():
    first = read("README.md").split("\n## ")[0]
    assert {"make run", "make test"} <= set(re.findall(r"^make \w+", first, re.MULTILINE))
    assert "](docs/assets/algorithms.svg)" in first


def test_the_picture_is_what_its_script_draws():
    drawn = subprocess.run(
        [sys.executable, "docs/draw_algorithms.py"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    assert drawn == (ROOT / "docs/assets/algorithms.svg").read_bytes()


def test_the_picture_has_a_title_and_a_description_for_those_who_do_not_see_it():
    space = "{http://www.w3.org/2000/svg}"
    root = ET.fromstring(read("docs/assets/algorithms.svg"))  # noqa: S314 - our own file
    labels = [root.find(f"{space}{name}") for name in ("title", "desc")]
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "title desc"
    for label in labels:
        assert label is not None
        assert label.text


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=lambda path: path.stem
)
def test_a_decision_record_is_short_and_has_its_three_parts(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(path.stem[:4])}. ")
    assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == [
        "Context",
        "Decision",
        "Consequences",
    ]
    assert len(text.splitlines()) <= 25


def test_the_arabic_guide_keeps_code_out_of_its_right_to_left_parts():
    depth = 0
    for line in read("docs/ar/guide.md").splitlines():
        if line.startswith("```"):
            assert depth == 0, line
        depth += line.startswith("<div") - line.startswith("</div>")
    assert depth == 0
