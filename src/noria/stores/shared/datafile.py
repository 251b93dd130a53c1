"""The shared store's file on disk: made whole, opened only when sound, set aside when not.

LMDB trusts its file, and with a writable map it pays for that with the process: a page that is
missing (a full disk, a file cut short) is a SIGBUS, a page that is wrong may be a SIGSEGV. So the
file has all its blocks before it gets its name; and before LMDB sees one that nobody else has open,
LMDB's own verifier, which only reads bytes, walks it. That walk is spared where the last process
left a note of the file's stamps when it closed, and nothing has touched the file since.

Two locks tell who is there. Opening, making and setting aside happen behind the *gate*, a lock on
the directory itself. Whether others have the file open is told by LMDB's own lock on `lock.mdb`,
which no killed process can leave behind. Both files of a pair are always made anew together: a
process that still has the old pair open must share neither with the new one.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import stat
import struct
import sys
import time
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import lmdb

from noria.model.errors import ConfigError, StoreUnavailable
from noria.stores.shared.clock import Anchor, boot_id, checked, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

# What LMDB says when it cannot make sense of a file.
DAMAGE = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
BIRTH, CLOCK = b"\x00birth", b"\x00clock"
SECRET_SIZE = 32

_NAME, _VERSION = b"nora", 1
_BIRTH = struct.Struct("<4sIQ32s")
_DATA, _LOCK, _NEW, _NOTE, _ASIDE = (
    "data.mdb",
    "lock.mdb",
    "data.mdb.new",
    "noria.clean",
    ".damaged-",
)
_LOCK_SIZE = 16384  # more than LMDB's table of readers needs
_LEAST_SIZE = 65536
_HEADER = struct.Struct("=II8xQ")  # LMDB's magic number, its format, (an address), the map's size
_MAGIC = 0xBEEFC0DE
_PATIENCE = 10.0  # for the gate: longer than a full file's verification takes

_log = logging.getLogger("noria")


class Opened(NamedTuple):
    """An open file and what it says of itself."""

    env: lmdb.Environment
    size: int
    secret: bytes
    anchor: Anchor
    alone: bool
    """No other process had it open."""


class _DamagedError(Exception):
    """The file is not what it should be; the text says why."""


@contextmanager
def gate(directory: Path, patience: float = _PATIENCE) -> Generator[None]:
    """Be the only one, of all processes, that opens, makes or sets aside the file.

    Raises:
        StoreUnavailable: others did not get done in `patience` seconds.
        OSError: the directory is gone.
    """
    limit = time.monotonic() + patience
    while True:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Not a blocking call: a stopped process may hold it.
            while not _try_lock(held):
                if time.monotonic() >= limit:
                    raise StoreUnavailable(f"another process is opening the store in {directory}")
                time.sleep(0.002)
            # The directory may have been replaced meanwhile.
            if os.path.samestat(os.fstat(held), directory.stat()):
                yield
                return
        finally:
            os.close(held)


def _try_lock(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_data(
    directory: Path, *, size: int, secret: bytes, anchor: Anchor, suspect: bool
) -> Opened:
    """Open the file, made anew where it is missing or damaged; call it behind the gate.

    Args:
        directory: Where it is.
        size: In bytes; a larger file stays, a smaller one grows if nobody else has it open.
        secret: For a new file.
        anchor: For a new file.
        suspect: LMDB found damage in it, so verify it even when others have it open.

    Raises:
        ConfigError: there is no room, or it is not possible here; the text says which.
    """
    size = -(-max(size, _LEAST_SIZE) // mmap.PAGESIZE) * mmap.PAGESIZE
    birth = signed(_BIRTH.pack(_NAME, _VERSION, size, secret))

    def make(problem: str = "") -> None:
        if problem:
            _set_aside(directory, problem)
        _make(directory, size, {BIRTH: birth, CLOCK: anchor.pack()})

    try:
        alone = _alone(directory)
        clean = alone and _clean(directory)
        (directory / _NOTE).unlink(missing_ok=True)
        if not os.path.lexists(directory / _DATA):
            make()
        elif problem := _problem(directory) or (None if clean or not alone else _verify(directory)):
            make(problem)
        elif alone:
            _allocate(directory / _LOCK, _LOCK_SIZE)
            _allocate(directory / _DATA, size)
        try:
            return _open(directory, alone=alone, suspect=suspect)
        except (_DamagedError, *DAMAGE) as error:
            make(str(error))
            return _open(directory, alone=alone, suspect=False)
    except (OSError, lmdb.Error, _DamagedError) as error:
        raise _refused(directory, size, error) from error


def leave_note(directory: Path) -> None:
    """Say that the file, which was just closed, is as it should be, if nobody else has it open."""
    with suppress(OSError, StoreUnavailable), gate(directory, 0):
        if _alone(directory):
            (directory / _NOTE).write_bytes(_stamps(directory))


def identity(directory: str) -> tuple[int, ...]:
    """What changes when the pair of files is replaced, or cut short beneath us.

    Raises:
        OSError: one of them is missing.
    """
    data, lock = os.stat(f"{directory}/{_DATA}"), os.stat(f"{directory}/{_LOCK}")  # noqa: PTH116 - fast
    return data.st_dev, data.st_ino, data.st_size, lock.st_ino


def _open(directory: Path, *, alone: bool, suspect: bool) -> Opened:
    size = (directory / _DATA).stat().st_size
    env = lmdb.open(
        str(directory),
        map_size=size,  # exactly: with a writable map LMDB cuts or stretches the file to it
        mode=0o600,
        readahead=False,
        writemap=True,
        sync=False,
        metasync=False,
        map_async=True,
        lib_version=0,  # the environment could choose another format for new files
    )
    try:
        # A write transaction, so that no slot for readers is taken: one left by a killed process
        # would keep pages from being used again.
        env.reader_check()
        with env.begin(write=True) as txn:
            version, secret, anchor = _read(txn, directory)
            # Nobody can write while we are in here, so the verifier sees a file at rest.
            if suspect and not alone and (problem := _verify(directory)):
                raise _DamagedError(problem)  # noqa: TRY301 - so that it is closed
            # LMDB writes the size of a map down with a change only.
            txn.put(BIRTH, signed(_BIRTH.pack(_NAME, version, size, secret)))
    except BaseException:
        env.close()
        raise
    return Opened(env, size, secret, anchor, alone)


def _read(txn: lmdb.Transaction[bytes], directory: Path) -> tuple[int, bytes, Anchor]:
    found, anchor = checked(txn.get(BIRTH), _BIRTH.size), Anchor.unpack(txn.get(CLOCK))
    if found is None or anchor is None:
        raise _DamagedError("its own records are missing or garbled")
    name, version, _, secret = _BIRTH.unpack(found)
    if name != _NAME:
        raise _DamagedError("it is not a file of Noria's")
    if version > _VERSION:
        # Not damage: a newer Noria is probably at work in it right now.
        raise ConfigError(
            f"the shared store in {directory} was made by a newer Noria (format {version}, not"
            f" {_VERSION}): update this one, or give it another directory"
        )
    return version, secret, anchor


def _make(directory: Path, size: int, records: dict[bytes, bytes]) -> None:
    """Make both files; the data file gets its name last, when nothing is missing."""
    data, lock, new = directory / _DATA, directory / _LOCK, directory / _NEW
    for path in (new, lock):
        path.unlink(missing_ok=True)
    try:
        room = os.statvfs(directory)
        if size > room.f_bavail * room.f_frsize:
            # Some file systems would fill up before they say so.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
        # Without a writable map: here a full disk is an error.
        with (
            lmdb.open(
                str(new),
                map_size=size,
                subdir=False,
                lock=False,
                mode=0o600,
                sync=False,
                lib_version=0,
            ) as env,
            env.begin(write=True) as txn,
        ):
            for key, value in records.items():
                txn.put(key, value)
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        _allocate(lock, _LOCK_SIZE)
        _allocate(new, size)
        new.rename(data)
    except (OSError, lmdb.Error) as error:
        for path in (new, lock):
            path.unlink(missing_ok=True)
        # What was kept to be looked at is not worth an outage.
        if not (_is_full(error) and _forget_damaged(directory)):
            raise
        _make(directory, size, records)


def _allocate(path: Path, size: int) -> None:
    """Give the file at least `size` bytes, and every byte it has a block."""
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        before = os.fstat(file)
        had, size = before.st_size, max(before.st_size, size)
        if size == had <= before.st_blocks * 512:
            return
        try:
            _reserve(file, had, size)
        except OSError:
            os.ftruncate(file, had)
            raise
    finally:
        os.close(file)


def _reserve(file: int, had: int, size: int) -> None:
    reserve: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
    if reserve is not None:
        try:
            return reserve(file, 0, size)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
                raise
    # macOS and file systems that cannot reserve: holes in what was there stay holes.
    zeros = bytes(1 << 20)
    os.lseek(file, had, os.SEEK_SET)
    while had < size:
        had += os.write(file, zeros[: size - had])
    return None


def _alone(directory: Path) -> bool:
    """Whether no process has the pair open; never ask while this one has it open.

    Closing a file drops all locks of the process on it, LMDB's own ones too.
    """
    try:
        file = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except (BlockingIOError, PermissionError):
        return False
    finally:
        os.close(file)
    return True


def _problem(directory: Path) -> str | None:
    """What is wrong with the pair at a glance, whoever has it open."""
    data = directory / _DATA
    if not os.path.lexists(directory / _LOCK):
        return "its lock file is gone"
    found = data.lstat()
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    with data.open("rb") as file:
        head = file.read(mmap.PAGESIZE + _HEADER.size + 16)
    if len(head) < mmap.PAGESIZE + _HEADER.size + 16 or found.st_size % mmap.PAGESIZE:
        return "it is cut short"
    for page in (0, mmap.PAGESIZE):  # two headers, used in turn
        magic, _, size = _HEADER.unpack_from(head, page + 16)
        if magic != _MAGIC:
            return "its header is garbled"
        if size > found.st_size:
            return "it is cut short"
    return None


def _verify(directory: Path) -> str | None:
    """What LMDB's verifier finds first; about 60 us a page in use, a second for 64 MiB."""
    if sys.maxsize < 1 << 32:
        return None  # it knows 64-bit files only
    verify: Callable[[str], list[str]] = import_module("lmdb.verify").verify
    try:
        problems = verify(str(directory))
    except Exception as error:  # noqa: BLE001 - whatever a garbled file makes it stumble over
        return str(error) or type(error).__name__
    return problems[0] if problems else None


def _set_aside(directory: Path, problem: str) -> None:
    _forget_damaged(directory)  # one is enough to look at, and each is as large as the map
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = directory / f"{_DATA}{_ASIDE}{stamp}"
    (directory / _DATA).rename(aside)
    (directory / _LOCK).unlink(missing_ok=True)
    _log.error(
        "the shared store's file was damaged (%s): set aside as %s, counts start anew",
        problem,
        aside,
    )


def _forget_damaged(directory: Path) -> bool:
    damaged = list(directory.glob(f"{_DATA}{_ASIDE}*"))
    for path in damaged:
        with suppress(OSError):
            path.unlink()
    return bool(damaged)


def _stamps(directory: Path) -> bytes:
    found = (directory / _DATA).stat()
    stamps = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return b"%b %b\n" % (boot_id(), " ".join(map(str, stamps)).encode())


def _clean(directory: Path) -> bool:
    # In another boot it may have lost what was never written out: nothing here is synced.
    try:
        return (directory / _NOTE).read_bytes() == _stamps(directory)
    except OSError:
        return False


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    return isinstance(error, lmdb.DiskError)


def _refused(directory: Path, size: int, error: Exception) -> ConfigError:
    if _is_full(error):
        why = f"there is no room for its file of {size} bytes"
    elif isinstance(error, OSError):
        why = f"{error.filename or 'its file'}: {error.strerror}"
    else:
        why = f"its file cannot be mapped or locked: {error}"
    return ConfigError(f"the shared store in {directory} cannot be opened: {why}")
