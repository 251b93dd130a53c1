"""Charges as text: what was charged, sealed so that nobody can make one up.

The text is base64url of a 16-byte seal, HMAC-SHA256 cut in half, and the JSON it seals. The key is
the store's own secret, so a charge is good in every process that shares the store and nowhere else.
What this needs is imported when it is used: most programs never refund by text.
"""

from __future__ import annotations

from noria.model.batch import Part
from noria.model.errors import UsageError
from noria.model.rate import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_SEAL = 16
_LONGEST = 1 << 20


def seal(secret: bytes, namespace: str, parts: Sequence[Part]) -> str:
    """The charge of `parts` as text."""
    import base64
    import json

    rows = [
        [part.key, part.rule_id, part.shape, part.at, part.cost, part.birth, part.number]
        for part in parts
    ]
    body = json.dumps([namespace, rows], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_mac(secret, body) + body).decode()


def unseal(secret: bytes, namespace: str, charge: object) -> list[Part]:
    """The parts of a charge; `UsageError` for a text that this store did not seal."""
    import base64
    import binascii
    import json
    from hmac import compare_digest

    if type(charge) is not str:
        raise UsageError(f"refund {shown(charge)}: expected a decision, or the text of its charge")
    try:
        raw = base64.b64decode(charge.encode("ascii"), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raw = b""
    mark, body = raw[:_SEAL], raw[_SEAL:]
    if len(raw) > _LONGEST or not compare_digest(mark, _mac(secret, body)):
        raise UsageError(f"charge {shown(charge)}: this store has not given out such a charge")
    sealed, rows = json.loads(body)
    if sealed != namespace:
        raise UsageError(
            f"charge {shown(charge)} is of namespace {shown(sealed)}, not {shown(namespace)}"
        )
    return [Part(key, rule_id, tuple(shape), *numbers) for key, rule_id, shape, *numbers in rows]


def _mac(secret: bytes, body: bytes) -> bytes:
    from hashlib import sha256
    from hmac import digest

    return digest(secret, body, sha256)[:_SEAL]
