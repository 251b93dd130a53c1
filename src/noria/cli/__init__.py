"""The command line, thin: it reads arguments, calls the floors below and prints what they say.

A mistake is one line on stderr and exit code 2, never a traceback.
"""

from __future__ import annotations


def main() -> None:
    """The entry point of the command `noria`."""
    from noria.cli.commands import run

    run()
