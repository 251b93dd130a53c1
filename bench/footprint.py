"""What it weighs: bytes per key, and the wall time of `import noria`.

Bytes per key: in a fresh process, the growth of the resident set over many new keys of a limit
of 1 a day, so that afterwards each key must be denied: a store that is cheap because it forgot
does not count. The shared store keeps its keys in a file, so there the file's pages in use are
counted instead. Import: fresh interpreters by turns, one importing noria, the next the four
standard modules it is compared with.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import measure
import peers
from peers import Rate, Session, Spec

if TYPE_CHECKING:
    from journal import Journal

LOG_ENTRIES = 100


def resident_bytes() -> int:
    """This process's resident set; off Linux its peak, which grows the same while filling."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()


def pages_in_use(directory: str) -> int:
    """Bytes of the LMDB pages that hold data, over all tables of all files in `directory`."""
    import lmdb

    total = 0
    for path in Path(directory).rglob("*"):
        if not path.is_file() or "lock" in path.name:
            continue
        try:
            env = lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=32)
        except lmdb.Error:  # not one of LMDB's own
            continue
        with env, env.begin() as txn:
            tables = [txn.stat()]
            if tables[0]["entries"] <= 32:  # few enough to be the names of tables
                for name in list(txn.cursor().iternext(keys=True, values=False)):
                    try:
                        tables.append(txn.stat(env.open_db(name, txn=txn, create=False)))
                    except lmdb.Error:  # a plain key
                        continue
            for table in tables:
                pages = table["branch_pages"] + table["leaf_pages"] + table["overflow_pages"]
                total += pages * table["psize"]
    return total


def _fill(session: Session, first: int, last: int, per_key: int) -> None:
    decide = session.bare or session.figures
    for number in range(first, last):
        for _ in range(per_key):
            if not session.allowed(decide(f"user:{number}")):
                raise AssertionError(f"new key {number} was denied: the store ran out of room")


def bytes_per_key(spec: Spec, keys: int, per_key: int) -> float:
    """To be run in a process of its own."""
    rate = Rate(per_key, "day")
    warm = keys // 100
    with tempfile.TemporaryDirectory() as root:
        directory = f"{root}/store"

        def weigh(session: Session) -> int:
            if spec.store == "shared":
                session.close()
                return pages_in_use(directory)
            measure.settle_down()
            gc.collect()
            return resident_bytes()

        def opened() -> Session:
            return peers.open_session(spec, rate, directory)

        session = opened()
        _fill(session, 0, warm, per_key)
        before = weigh(session)
        if spec.store == "shared":
            session = opened()
        _fill(session, warm, warm + keys, per_key)
        after = weigh(session)
        if spec.store == "shared":
            session = opened()
        for number in range(0, warm + keys, 97):
            if session.allowed(session.figures(f"user:{number}")):
                raise AssertionError(f"key {number} was forgotten")
        session.close()
    return (after - before) / keys


def run_bytes(keys: int, journal: Journal) -> list[dict[str, Any]]:
    """Bytes per key for every contender; for logs also with many entries on fewer keys."""
    rows: list[dict[str, Any]] = []
    jobs = [
        (spec, count, entries)
        for algorithm in peers.ALGORITHMS
        for spec in peers.contenders(algorithm)
        for count, entries in [(keys, 1), (keys // LOG_ENTRIES, LOG_ENTRIES)]
        if entries == 1 or algorithm == "sliding-window-log"
    ]
    context = multiprocessing.get_context("spawn")
    for spec, count, entries in jobs:
        title = f"bytes per key: {spec.label}, {spec.algorithm}, {entries} charged"
        journal.say(title)
        with journal.attempt(title), ProcessPoolExecutor(1, mp_context=context) as fresh:
            size = fresh.submit(bytes_per_key, spec, count, entries).result(60)
            rows.append(
                {
                    "contender": spec.label,
                    "library": spec.library,
                    "store": spec.store,
                    "algorithm": spec.algorithm,
                    "keys": count,
                    "charged_per_key": entries,
                    "bytes_per_key": size,
                }
            )
    return rows


_TIMED = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
OURS = "import noria"
NAMES = "from noria import Limit, Limiter"  # in case the package puts its own loading off
BASE = "import json, re, threading, dataclasses"


def _timed_import(statement: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(statement)]
    # An installed package has its byte code, whatever this shell says about writing it.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)  # noqa: S603
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout)


def run_import(runs: int, journal: Journal) -> dict[str, Any]:
    """Medians of the import statement's own time, the interpreter's start not in it."""
    journal.say("import time")
    took: dict[str, Any] = {}
    with journal.attempt("import time"):
        for statement in (OURS, NAMES, BASE):  # writes the byte code
            _timed_import(statement)
        times = [
            (_timed_import(OURS), _timed_import(BASE), _timed_import(NAMES)) for _ in range(runs)
        ]
        took.update(
            {
                "noria_seconds": median(ours for ours, _, _ in times),
                "noria_names_seconds": median(names for _, _, names in times),
                "base": BASE,
                "base_seconds": median(base for _, base, _ in times),
                "ratio": median(ours / base for ours, base, _ in times),
                "names_ratio": median(names / base for _, base, names in times),
                "runs": runs,
            }
        )
    return took
