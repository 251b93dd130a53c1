"""What a caller is told: header fields, and the answer to a refused call.

Pure functions of a decision; no framework and no clock. Names and values are text.
"""

from __future__ import annotations

from noria.responses.journal import Journal
from noria.responses.naming import policy_name, speaker
from noria.responses.problem import Refusal, refusal
from noria.responses.xratelimit import NAMES, fields, outranks

__all__ = [
    "NAMES",
    "Journal",
    "Refusal",
    "fields",
    "outranks",
    "policy_name",
    "refusal",
    "speaker",
]
