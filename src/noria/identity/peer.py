"""The peer's address as a key: one key for what one caller holds, one spelling for each key.

An IPv4 address is one caller as well as can be told. In IPv6 a host is given a /64 and picks
addresses from it as it likes (RFC 8981), so a key is that prefix: limits on single addresses would
limit nobody.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NO_ADDRESS = "anonymous"
"""The one key that all callers without an address share: Unix sockets, servers that name no peer,
and anything that is not an address. Sharing errs on the strict side; it never means no limit."""

_IPV6_PREFIX = 64

_EMBEDDED = (
    0xFFFF,  # ::ffff:0:0/96, IPv4 on a socket for both (RFC 4291, 2.5.5.2)
    0x64FF9B << 64,  # 64:ff9b::/96, IPv4 behind NAT64, which would share one /64 (RFC 6052)
)
"""Prefixes of 96 bits with an IPv4 address after them."""


def client_address(client: Sequence[object] | None) -> str:
    """The key of an ASGI scope's `client`: a pair of host and port, or None.

    `203.0.113.9` for IPv4, also where it is mapped into IPv6; `2001:db8:1:2::/64` for IPv6;
    `NO_ADDRESS` for everything else.
    """
    host = client[0] if isinstance(client, (tuple, list)) and client else None
    return address_key(host) if isinstance(host, str) else NO_ADDRESS


@lru_cache(maxsize=4096)
def address_key(text: str) -> str:
    """The key of an address in any of its spellings, `NO_ADDRESS` where there is none."""
    try:
        # A zone (fe80::1%eth0) says which interface of ours, not who is calling.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return NO_ADDRESS
    if isinstance(address, IPv6Address):
        bits = int(address)
        if bits >> 32 not in _EMBEDDED:
            return NO_ADDRESS if not bits else str(IPv6Network((bits & _NETWORK, _IPV6_PREFIX)))
        address = IPv4Address(bits & 0xFFFF_FFFF)
    return str(address) if int(address) else NO_ADDRESS


_NETWORK = (1 << 128) - (1 << 128 - _IPV6_PREFIX)
