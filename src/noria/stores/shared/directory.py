"""Which directory the shared store lives in, and whether it may.

Every process of one user has to arrive at the same place without being told, and nobody else may be
able to put a file there first. So the default is the user's own runtime directory, and where only a
place shared by all users is left, a directory in it that is provably ours. A directory that was
named is taken as it is. None may lie on a network: the store's locks are those of one machine.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

from noria.model.errors import ConfigError

# Types in the kernel's mount table; those of FUSE follow "fuse.".
_NETWORK = (
    *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fhgfs", "gcsfuse", "glusterfs"),
    *("goofys", "gpfs", "juicefs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "rclone"),
    *("s3fs", "smb3", "smbfs", "sshfs"),
)
_DARWIN_USER_TEMP_DIR = 65537  # confstr(3)'s number; Python does not know the name everywhere


def locate(directory: str | None) -> Path:
    """The directory to use, as a real path, made if missing; None is the user's default one.

    Raises:
        ConfigError: it cannot be made or used; the text has the path and the reason.
    """
    path = _own(*default_directory()) if directory is None else _named(directory)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        raise _refused(path, "it is on a read-only file system" if read_only else "no permission")
    kind = _filesystem(path, _mounts())
    if kind.removeprefix("fuse.") in _NETWORK:
        raise _refused(path, f"it is on a network file system ({kind}); it needs a local one")
    return path


def default_directory() -> tuple[Path, bool]:
    """This user's place for the store, not made yet, and whether others may write beside it."""
    user = os.geteuid()
    if sys.platform == "darwin":
        return Path(os.confstr(_DARWIN_USER_TEMP_DIR) or _temporary(), "noria"), False
    for base in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"):
        # A relative one would be another place for every working directory.
        if base and base.startswith("/"):
            with suppress(OSError):
                found = os.stat(base)  # noqa: PTH116 - a tenth of the time of Path's, each second
                if stat.S_ISDIR(found.st_mode) and found.st_uid == user:
                    return Path(base, "noria"), False
    if os.access("/dev/shm", os.W_OK | os.X_OK):  # noqa: S108 - checked by _own
        return Path(f"/dev/shm/noria-{user}"), True  # noqa: S108
    return Path(_temporary(), f"noria-{user}"), True


def _temporary() -> str:
    from tempfile import gettempdir  # slow to import, and hardly ever needed

    return gettempdir()


def _own(path: Path, exposed: bool) -> Path:  # noqa: FBT001
    """Make the default directory, or see that nobody else did."""
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat() if exposed else path.stat()
    except OSError as error:
        raise _refused(path, error.strerror or "unusable") from error
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path, "it is a symbolic link, which anybody may have made")
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(path, "a file is in the way")
    if found.st_uid != os.geteuid():
        raise _refused(path, f"it belongs to another user ({found.st_uid})")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _refused(path, f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})")
    return path.resolve()


def _named(directory: str) -> Path:
    if not directory:
        raise ConfigError("the shared store's directory has no name")
    try:
        path = Path(directory).resolve()
        for part in reversed([part for part in (path, *path.parents) if not part.exists()]):
            with suppress(FileExistsError):  # another process was faster
                part.mkdir(mode=0o700)
        if not path.is_dir():
            raise _refused(path, "a file is in the way")
    except ConfigError:
        raise
    except NotADirectoryError as error:
        raise _refused(directory, "a file is in the way") from error
    except OSError as error:
        raise _refused(directory, error.strerror or "unusable") from error
    except (ValueError, RuntimeError) as error:  # a zero byte; a ring of symbolic links
        raise _refused(directory, str(error)) from error
    return path


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


def _filesystem(path: Path, mounts: str) -> str:
    """The type of file system `path` is on, by the kernel's mount table; "" when unknown."""
    kind, depth = "", -1
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) > 4 and source:  # noqa: PLR2004 - proc(5): the fifth is the mount point
            point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
            # Of two on one point the later one hides the earlier.
            if len(point.parts) >= depth and path.is_relative_to(point):
                kind, depth = source.split(" ", 1)[0], len(point.parts)
    return kind


def _refused(path: Path | str, reason: str) -> ConfigError:
    text = str(path)
    shown = text if len(text) <= 200 else f"{text[:200]}..."  # noqa: PLR2004 - enough to know it by
    return ConfigError(f"the shared store cannot use the directory {shown!r}: {reason}")
