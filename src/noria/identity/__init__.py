"""Who is calling: from what a server knows of the connection to the text of a key.

The socket's peer is the only address a caller cannot write himself, so it is the only one believed
here; headers such as X-Forwarded-For are not read.
"""

from __future__ import annotations

from noria.identity.peer import NO_ADDRESS, address_key, client_address

__all__ = ["NO_ADDRESS", "address_key", "client_address"]
