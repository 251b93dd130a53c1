"""Settings of the whole test run, and the examples in the documentation."""

import os

from hypothesis import settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# Slow machines are not bugs. In CI a run is repeatable; new examples are searched for nightly.
settings.register_profile("noria", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=5_000, print_blob=True)
settings.load_profile("noria")

# Every Python block in the README and in docs/ is run; `<!--- skip: next -->` spares one.
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
).pytest()
