"""Where the figures come from: processor, cores, system, Python and versions."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("noria", "limits", "throttled-py", "lmdb")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _cores() -> int:
    """Cores this process may use, where the system can tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _system() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.platform()}"
    except OSError:
        return platform.platform()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "source tree" if package in sys.modules else "not installed"


def compiled(package: str) -> bool:
    """Whether any module of `package` loaded so far is an extension."""
    files = [
        getattr(module, "__file__", None) or ""
        for name, module in list(sys.modules.items())
        if name == package or name.startswith(f"{package}.")
    ]
    return any(file.endswith((".so", ".pyd")) for file in files)


def describe() -> dict[str, Any]:
    """Call it after the run, when everything is imported."""
    return {
        "processor": _processor(),
        "cores": _cores(),
        "load_average": os.getloadavg()[0],
        "system": _system(),
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "packages": {name: _version(name) for name in PACKAGES},
        "noria_compiled": compiled("noria"),
    }
