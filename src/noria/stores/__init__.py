"""Where states are kept. A store applies a batch in one atomic step and knows nothing of rates.

Stores are chosen by URL in one function, `open_store`.
"""

from __future__ import annotations

from threading import Lock

from noria.model.errors import ConfigError
from noria.model.rate import shown
from noria.stores.memory import MemoryStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.model.contract import Store

_LATER = (
    "redis",
    "rediss",
    "redis+",
    "valkey",
    "valkeys",
    "valkey+",
    "upstash",
    "postgresql",
    "postgres",
)
_SIZES = {"": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}

_LEAST_SIZE = 4 << 20
"""Of a shared file: below, the room that LMDB needs for its copies is too much of it."""

_named: dict[str, tuple[dict[str, int], MemoryStore]] = {}
_named_lock = Lock()


def open_store(url: str | Store) -> Store:
    """The store a URL names; a store is handed back as it is.

    - `memory://`: in this process, each its own; `memory://name`: one of that name per process.
      Options: `?max_entries=200000&max_bytes=64MB`.
    - `shared://`, `shared:///path/to/dir`: every process of one machine, in a file, no server.
      Option: `?size=256MB`, the size of the file. Needs `pip install "noria[shared]"`.

    Raises `ConfigError` for any other URL, and where the store cannot be opened.
    """
    if not isinstance(url, str):
        if hasattr(url, "space"):
            return url
        raise ConfigError(
            f"store {shown(url)}: expected a URL such as memory:// or shared://, or a store"
        )
    from urllib.parse import parse_qsl, unquote, urlsplit

    parts = urlsplit(url)
    name = unquote(parts.netloc)
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        pairs = []
    options = dict(pairs)
    if len(options) != len(pairs) or (parts.query and not pairs) or parts.fragment:
        raise ConfigError(
            f"store {shown(url)}: options are written ?name=value&name=value, each name once"
        )
    if parts.scheme == "memory" and "://" in url and parts.path == "":
        return _memory(url, name, options)
    if parts.scheme == "shared" and "://" in url and not name:
        return _shared(url, unquote(parts.path), options)
    if parts.scheme.startswith(_LATER):
        raise ConfigError(
            f"store {parts.scheme}://: not in this version; use memory:// or shared://"
        )
    raise ConfigError(
        f"store {shown(url)}: expected memory://, memory://name, shared:// or shared:///path/to/dir"
    )


def _memory(url: str, name: str, options: dict[str, str]) -> MemoryStore:
    sizes = _sizes(url, options, ("max_entries", "max_bytes"))
    if not name:
        return MemoryStore(**sizes)
    with _named_lock:
        known, store = _named.setdefault(name, (sizes, MemoryStore(**sizes)))
    if sizes not in ({}, known):
        raise ConfigError(f"store {shown(url)}: this process has that store with options {known}")
    return store


def _shared(url: str, path: str, options: dict[str, str]) -> Store:
    try:
        from noria.stores.shared import SharedStore
    except ImportError:
        raise ConfigError(
            f'store {shown(url)} needs the extra "shared": pip install "noria[shared]"'
        ) from None
    sizes = _sizes(url, options, ("size",))
    if sizes.get("size", _LEAST_SIZE) < _LEAST_SIZE:
        raise ConfigError(f"store {shown(url)}: size: expected {_LEAST_SIZE >> 20}MB or more")
    return SharedStore(None if path in ("", "/") else path, **sizes)


def _sizes(url: str, options: dict[str, str], known: tuple[str, ...]) -> dict[str, int]:
    """Options that are whole numbers, with a unit where they count bytes."""
    sizes: dict[str, int] = {}
    for name, text in options.items():
        digits = text.lower().rstrip("kmgb")
        unit = _SIZES.get(text.lower()[len(digits) :])
        if name not in known:
            raise ConfigError(
                f"store {shown(url)}: option {shown(name)} is not known: expected "
                + ", ".join(known)
            )
        if not (digits.isascii() and digits.isdigit()) or unit is None or not int(digits):
            raise ConfigError(
                f"store {shown(url)}: {name} {shown(text)}: expected a whole number above 0, such "
                "as 200000 or 64MB"
            )
        sizes[name] = int(digits) * unit
    return sizes
