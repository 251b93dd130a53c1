"""Noria beside `limits` and `throttled-py`, in one run: `python bench/run.py [--quick]`.

Prints tables and writes the same as JSON. See README.md here for how to read them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import footprint
import machine
import onethread
import processes
import report
import targets
import tasks
from journal import Journal

HERE = Path(__file__).parent
RAM_DISK = Path("/dev/shm")  # noqa: S108  where there is one, no real disk adds its noise
ROOM = 2 << 30


def measure_all(*, quick: bool) -> dict[str, Any]:
    """Every section; what could not be measured is under "skipped", with the reason."""
    journal = Journal()
    with contextlib.suppress(ImportError):
        import noria  # noqa: F401  so that its version and build can be told
    results: dict[str, Any] = {"machine": machine.describe(), "quick": quick}
    if quick:
        keys, seconds, specs = 5_000, 0.2, processes.SHARED
        plan = onethread.Plan(rounds=2, seconds=0.02, keys=keys, log_calls=10_000)
    else:
        keys, seconds, specs = 100_000, 0.8, processes.SHARED + processes.FOR_SCALE
        plan = onethread.Plan(rounds=7, seconds=0.06, keys=keys, log_calls=10_000)
    results["one_thread"] = onethread.run(plan, journal)
    results["processes"] = processes.run(specs, keys, seconds, journal)
    results["bytes_per_key"] = footprint.run_bytes(keys, journal)
    results["asyncio"] = tasks.run(1 if quick else 3, 0.2 if quick else 0.3, journal)
    results["import"] = footprint.run_import(5 if quick else 20, journal)
    results["targets"] = targets.compare(results)
    results["skipped"] = journal.skipped
    results["seconds"] = journal.seconds
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a rough look, in half a minute")
    parser.add_argument(
        "--json", type=Path, default=HERE / "results" / "latest.json", metavar="FILE"
    )
    args = parser.parse_args()
    if RAM_DISK.is_dir() and shutil.disk_usage(RAM_DISK).free > ROOM:
        os.environ["TMPDIR"] = str(RAM_DISK)  # for the processes started here too
    results = measure_all(quick=args.quick)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(results, indent=1) + "\n")
    print(report.render(results))
    print(f"{results['seconds']:.0f} s; written to {args.json}")


if __name__ == "__main__":
    main()
