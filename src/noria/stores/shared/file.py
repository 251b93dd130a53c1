"""One LMDB environment of this process, shared by every store opened on the same directory.

LMDB cannot open one file twice in a process, and an open environment does not survive a fork. So
there is one `SharedFile` for each directory, and it may be closed and opened again beneath its
users at any moment outside a transaction: before a fork, after damage, when the file was deleted or
replaced. Users see none of this but `begin`, an attribute: while the file is open, it is LMDB's own
`begin` with its arguments bound; while it is closed, it opens the file first.

What must not happen is a close under a transaction of another thread. A lock around each would
cost 70 ns; being counted costs 18. A user says `enter(None)` before `begin` and `leave()` after the
commit, which are a deque's append and pop. Whoever wants to close first puts the slow `begin` in
place, then waits until the deque is empty: a thread that is still counted may hold LMDB's `begin`,
one that comes now cannot get it. Nothing that a counted thread calls may wait for the closer.

    file.enter(None)
    try:
        txn = file.begin()
        try:
            now = file.now()
            if now >= file.due:
                file.tick(txn, now)
            ...
            txn.commit()
        except BaseException:
            txn.abort()
            raise
    except lmdb.Error as error:
        raise file.failed(error) from error
    finally:
        file.leave()
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import time
from collections import deque
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import lmdb

from noria.model.errors import ConfigError, StoreUnavailable
from noria.stores.shared.clock import SECOND, Anchor, Clocks
from noria.stores.shared.datafile import (
    CLOCK,
    DAMAGE,
    SECRET_SIZE,
    Opened,
    gate,
    identity,
    leave_note,
    open_data,
)
from noria.stores.shared.directory import default_directory, locate

if TYPE_CHECKING:
    from collections.abc import Callable

# About one key or one transaction, not about the file.
_HARMLESS = (
    lmdb.BadValsizeError,
    lmdb.CursorFullError,
    lmdb.KeyExistsError,
    lmdb.MapFullError,
    lmdb.NotFoundError,
    lmdb.PageFullError,
    lmdb.TxnFullError,
)
_RETRY = 1.0  # seconds between two attempts to open
_PATIENCE = 5.0  # seconds to wait for transactions of other threads; they take microseconds
_POLL = 0.0002

_log = logging.getLogger("noria")


class SharedFile:
    """The file of one directory; made by `acquire`, given back by `release`."""

    path: str
    """The real directory."""
    secret: bytes
    """Made by whoever made the file. Read it each time: another file may have taken its place."""
    salt: int
    """Of 56 bits, from the secret: makes numbers that are unique in a file unique over files."""
    size: int
    """Of the map and the file, in bytes."""
    steady: Callable[[], int]
    """Nanoseconds of a clock that only goes forward. `now` is this and `offset`, spelt out where a
    call is too much."""
    offset: int
    """Microseconds between that clock and the store's; changes when the file is opened."""
    due: int
    """The store time from which `tick` is to be called."""
    begin: Callable[[], lmdb.Transaction[bytes]]
    """A write transaction; raises `StoreUnavailable`, or `lmdb.Error` which goes to `failed`."""
    enter: Callable[[None], None]
    """Be counted, before `begin`."""
    leave: Callable[[], None]
    """After the commit or abort, whatever happened."""

    def __init__(self, directory: str | None, path: Path, size: int, clocks: Clocks) -> None:
        self._directory, self._wanted, self._clocks = directory, size, clocks
        self.steady = clocks.steady
        self._inside: deque[None] = deque()
        self.enter, self.leave = self._inside.append, self._inside.pop
        self.path, self.size, self.secret, self.due = str(path), size, b"", 0
        self.salt = 0
        self._env: lmdb.Environment | None = None
        self.offset = 0
        self._files: tuple[int, ...] = ()
        self._default = default_directory()
        self._users = 0
        self._stale = False  # to be closed and opened again
        self._suspect = False  # LMDB found damage
        self._lost = False  # open when this process was forked off, and not ours to close
        self._not_before = 0.0
        self.begin = self._begin_closed

    @classmethod
    def acquire(cls, directory: str | None, size: int, clocks: Clocks | None = None) -> SharedFile:
        """This process's file in `directory` (None: the user's default one), opened and counted.

        `size` is what a new file gets, in bytes. A larger one stays; a smaller one is made larger
        when nobody else has it open. `clocks` is for tests.

        Raises:
            ConfigError: directory or file cannot be used; the text names it and the reason.
            StoreUnavailable: another process did not get done opening it.
        """
        with _guard:
            path = locate(directory)
            file = next((file for file in _files if file.path == str(path)), None)
            if file is None:
                file = cls(directory, path, size, clocks or Clocks())
                try:
                    file._open()
                except OSError as error:
                    raise ConfigError(f"the shared store in {path}: {error}") from error
                _files.append(file)
            elif file._users == 0:
                file.begin = file._begin_closed
            if size > file.size:
                _log.info(
                    "the shared store in %s is open and stays at %d bytes", file.path, file.size
                )
            file._users += 1
            return file

    def release(self) -> None:
        """Give it back; the last one closes it."""
        with _guard:
            self._users -= 1
            if self._users == 0 and self.close(_PATIENCE):
                _files.remove(self)
                self.begin = self._begin_released

    def now(self) -> int:
        """The store's clock: microseconds since the epoch, the same in all processes."""
        return self.steady() // 1000 + self.offset

    def tick(self, txn: lmdb.Transaction[bytes], now: int) -> None:
        """What is done once a second: save the time reached, and see that the file is still there.

        Raises:
            lmdb.Error: as the transaction's own calls.
        """
        self.due = now + SECOND
        if self._env is not None:
            # A process that was killed while it opened the file may have left a slot.
            self._env.reader_check()
        anchor = Anchor.unpack(txn.get(CLOCK))
        if anchor is None:
            self._reopen(suspect=True)
            return
        # It changes under us only if somebody thought to be alone because a lock was deleted.
        self.offset = max(self.offset, anchor.offset)
        if now > anchor.last:
            txn.put(CLOCK, anchor._replace(last=now).pack())
        if self._replaced():
            self._reopen(suspect=False)

    def failed(self, error: lmdb.Error) -> StoreUnavailable:
        """What to raise for an error met between `enter` and `leave`.

        Unless it is about one key only, the next `begin` opens the file again, and verifies it if
        LMDB found damage; at most once a second, in between it raises `StoreUnavailable`.
        """
        code = getattr(error, "code", 0)
        # EBUSY: this very thread is in a transaction, and was interrupted by a signal handler.
        if not isinstance(error, _HARMLESS) and code != errno.EBUSY:
            self._reopen(suspect=isinstance(error, DAMAGE))
        return StoreUnavailable(f"the shared store in {self.path}: {error}")

    def _reopen(self, *, suspect: bool) -> None:
        self._suspect |= suspect
        self._stale = True
        self.begin = self._begin_closed

    def _replaced(self) -> bool:
        try:
            if identity(self.path) != self._files:
                return True
            # The user's runtime directory comes and goes with logins; all follow it.
            return self._directory is None and default_directory() != self._default
        except OSError:
            return True

    def _begin_closed(self) -> lmdb.Transaction[bytes]:
        """In place of LMDB's `begin` while the file is closed, or has to be closed."""
        self.leave()  # or whoever closes it would wait for us
        try:
            with _guard:
                self._ensure_open()
        finally:
            self.enter(None)
        return self.begin()

    def _begin_released(self) -> lmdb.Transaction[bytes]:
        raise StoreUnavailable(f"the shared store in {self.path} was closed")

    def _ensure_open(self) -> None:
        if self._env is not None and not self._stale:
            self.resume()
            return
        if self._lost:
            raise StoreUnavailable(f"the shared store in {self.path} was in use during a fork")
        if time.monotonic() < self._not_before:
            raise StoreUnavailable(f"the shared store in {self.path} could not be opened just now")
        self._not_before = time.monotonic() + _RETRY
        if not self.close(_PATIENCE):
            raise StoreUnavailable(f"the shared store in {self.path} is held up")
        try:
            self._open()
        except (ConfigError, OSError) as error:
            raise StoreUnavailable(str(error)) from error

    def _open(self) -> None:
        self._not_before = time.monotonic() + _RETRY
        self._default = default_directory()
        directory = locate(self._directory)
        clocks = self._clocks
        with gate(directory):
            opened = open_data(
                directory,
                size=self._wanted,
                secret=os.urandom(SECRET_SIZE),
                anchor=clocks.anchor(self.now() if self.offset else 0),
                suspect=self._suspect,
            )
            try:
                anchor = clocks.reanchor(opened.anchor, alone=opened.alone)
                if anchor != opened.anchor:
                    with opened.env.begin(write=True) as txn:
                        txn.put(CLOCK, anchor.pack())
                self._files = identity(str(directory))
            except BaseException:
                opened.env.close()
                raise
        self._adopt(directory, opened, anchor)

    def _adopt(self, directory: Path, opened: Opened, anchor: Anchor) -> None:
        self.path, self.size, self.secret = str(directory), opened.size, opened.secret
        self.salt = int.from_bytes(opened.secret[:7], "big")
        self.offset = anchor.offset
        self.due = self.now() + SECOND
        self._stale = self._suspect = False
        self._env = opened.env
        self.resume()

    def resume(self) -> None:
        """Use it as it is, if it is open and nothing is known against it."""
        if self._env is not None and not self._stale:
            # By position: 60 ns less than by name.
            self.begin = partial(self._env.begin, None, None, True)  # noqa: FBT003

    def close(self, patience: float) -> bool:
        """Close it when no thread is inside; False if some did not leave in time."""
        env = self._env
        if env is None:
            return True
        self.begin = self._begin_closed
        if not self._emptied(patience):
            return False
        self._env = None
        if not self._stale:
            self._not_before = 0.0  # this was no failure
        env.close()
        leave_note(Path(self.path))
        return True

    def _emptied(self, patience: float) -> bool:
        # In a build without the GIL these two order the new `begin` before the look at the deque.
        self.enter(None)
        self.leave()
        limit = time.monotonic() + patience
        while self._inside:
            if time.monotonic() > limit:
                return False
            time.sleep(_POLL)
        return True

    def before_fork(self) -> None:
        """Close it, or say why not."""
        if not self.close(_PATIENCE):
            _log.warning("the shared store in %s was in use during a fork", self.path)

    def forked(self, *, certain: bool) -> None:
        """See what was inherited by a child; nothing, unless the hooks before the fork failed.

        No hook runs before a fork in C; and a thread may have been inside for too long. `certain`:
        no thread was opening or closing a file.
        """
        env, self._env = self._env, None
        if not certain or (env is not None and self._inside):
            self._lost = True
            if env is not None:
                # LMDB would wait for a thread that is not in this process; so it is never freed.
                from ctypes import py_object, pythonapi

                pythonapi.Py_IncRef(py_object(env))
        elif env is not None:
            env.close()
        self._inside.clear()
        self._not_before = 0.0
        if self._users:
            self.begin = self._begin_closed


_files: list[SharedFile] = []
_guard = RLock()  # over opening, closing and `_files`; not taken by a thread that is inside
_guarded = False  # by the thread that forks


def _before_fork() -> None:
    global _guarded  # noqa: PLW0603
    _guarded = _guard.acquire(timeout=_PATIENCE)
    if _guarded:
        for file in _files:
            file.before_fork()


def _after_in_parent() -> None:
    global _guarded  # noqa: PLW0603
    if _guarded:
        for file in _files:
            file.resume()
        _guarded = False
        _guard.release()


def _after_in_child() -> None:
    global _guard, _guarded  # noqa: PLW0603
    certain = _guarded or _guard.acquire(blocking=False)
    for file in _files:
        file.forked(certain=certain)
    if certain:
        _guard.release()
    else:
        _guard = RLock()
    _guarded = False


def _at_exit() -> None:
    with _guard:
        for file in _files:
            file.close(patience=0.1)


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
# So that the next process need not verify the file.
atexit.register(_at_exit)
