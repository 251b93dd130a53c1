"""The shared store's file: where it lies, what it survives, what time it is there."""

import ctypes
import errno
import logging
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.model.errors import ConfigError, StoreUnavailable
from noria.stores.shared import datafile, directory
from noria.stores.shared import file as module
from noria.stores.shared.clock import SECOND, Anchor, Clocks
from noria.stores.shared.datafile import BIRTH, CLOCK
from noria.stores.shared.directory import locate
from noria.stores.shared.file import SharedFile

# Python 3.12 and newer warn of what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

SIZE = 1 << 20
KEY = b"count"

# What a process of its own starts with.
PRELUDE = """
import os, sys, time
from pathlib import Path
from test_shared_file import SIZE, add, read
from noria.stores.shared.file import SharedFile
place = Path(sys.argv[1])
"""


def add(file, key=KEY):
    """One more, as the store does it; returns the count and the time it was reached."""
    file.enter(None)
    try:
        txn = file.begin()
        try:
            now = file.now()
            if now >= file.due:
                file.tick(txn, now)
            count = int(txn.get(key) or 0) + 1
            txn.put(key, b"%d" % count)
            txn.commit()
        except BaseException:
            txn.abort()
            raise
    except lmdb.Error as error:
        raise file.failed(error) from error
    finally:
        file.leave()
    return count, now


def read(file, key=KEY):
    file.enter(None)
    try:
        with file.begin() as txn:
            return int(txn.get(key) or 0)
    finally:
        file.leave()


def start(code, *args, **popen):
    paths = f"{Path(__file__).parent}{os.pathsep}{Path(directory.__file__).parents[3]}"
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        **popen,
    )


def finish(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def eventually(check, seconds=10):
    limit = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < limit
        time.sleep(0.01)
    return found


def damaged(place):
    return sorted(place.glob("data.mdb.damaged-*"))


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def opened(place):
    """Opens files in `place` and gives them back."""
    files = []

    def acquire(size=SIZE, where=place, **options):
        files.append(SharedFile.acquire(str(where), size, **options))
        return files[-1]

    yield acquire
    for file in files:
        if file._users:
            file.release()


HOLDER = """
file = SharedFile.acquire(str(place), SIZE)
print("open", flush=True)
sys.stdin.readline()
print(add(file)[0] if "add" in sys.argv else 0)
"""


@pytest.fixture
def holder(place):
    """Another process that has the file open, idle, until it is told to go on."""
    processes = []

    def hold(*args):
        process = start(HOLDER, place, *args)
        processes.append(process)
        assert process.stdout.readline() == "open\n"
        return process

    yield hold
    for process in processes:
        process.kill()
        process.communicate()


# The file


def test_a_new_file_has_all_its_blocks_and_is_private(place, opened):
    assert opened(SIZE).size == SIZE
    for name, size in (("data.mdb", SIZE), ("lock.mdb", 16384)):
        found = (place / name).stat()
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert found.st_size == size <= found.st_blocks * 512
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_no_room_is_an_error_that_says_how_much_and_leaves_nothing_behind(place):
    size = 1 << 45
    with pytest.raises(ConfigError, match=f"{place}.*no room.* {size} bytes"):
        SharedFile.acquire(str(place), size)
    assert list(place.iterdir()) == []


def test_a_disk_that_fills_up_on_the_way_leaves_nothing_behind(place, monkeypatch):
    def reserve(file, _had, size):
        os.write(file, bytes(size // 2))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(datafile, "_reserve", reserve)
    with pytest.raises(ConfigError, match="no room"):
        SharedFile.acquire(str(place), SIZE)
    assert list(place.iterdir()) == []


def test_what_was_set_aside_makes_room_for_a_new_file(place, monkeypatch):
    place.mkdir()
    (place / "data.mdb.damaged-20260101T000000Z").write_bytes(b"old")
    reserve = datafile._reserve

    def full(file, had, size):
        if damaged(place):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        reserve(file, had, size)

    monkeypatch.setattr(datafile, "_reserve", full)
    SharedFile.acquire(str(place), SIZE).release()
    assert damaged(place) == []


def test_blocks_are_written_where_they_cannot_be_reserved(place, opened, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    add(opened())
    found = (place / "data.mdb").stat()
    assert found.st_size == SIZE <= found.st_blocks * 512 + 8192


def test_a_larger_file_stays_and_a_smaller_one_grows(opened):
    file = opened(SIZE)
    add(file)
    file.release()
    file = opened(SIZE // 2)
    assert file.size == SIZE
    file.release()
    file = opened(2 * SIZE)
    assert file.size == 2 * SIZE
    assert add(file)[0] == 2
    file.release()
    assert opened(SIZE).size == 2 * SIZE


def test_a_file_that_others_have_open_does_not_grow(place, opened, holder, caplog):
    process = holder("add")
    with caplog.at_level(logging.INFO, "noria"):
        assert opened(2 * SIZE).size == SIZE
    assert f"stays at {SIZE} bytes" in caplog.text
    assert process.communicate("\n", timeout=30)[0] == "1\n"
    assert (place / "data.mdb").stat().st_size == SIZE


def test_one_directory_is_one_file_however_it_is_named(place, opened, tmp_path):
    (tmp_path / "other").symlink_to(place)
    first, second = opened(), opened(where=tmp_path / "other")
    assert first is second
    first.release()
    assert add(second)[0] == 1
    second.release()
    with pytest.raises(StoreUnavailable, match="closed"):
        add(second)
    assert add(opened())[0] == 2


def test_all_processes_have_the_secret_of_whoever_made_the_file(place, opened):
    secrets = {
        finish(start("print(SharedFile.acquire(str(place), SIZE).secret.hex())", place)).strip()
        for _ in range(2)
    }
    assert secrets == {opened().secret.hex()}
    assert len(opened().secret) == 32


# The directory


def test_the_default_is_the_users_runtime_directory(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = locate(None)
    assert found == tmp_path / "noria"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


@pytest.mark.parametrize("useless", ["", "relative", "/nowhere", __file__])
def test_a_runtime_directory_that_is_none_is_passed_over(useless, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", useless)
    found, _ = directory.default_directory()
    user = os.geteuid()
    assert str(found).endswith((f"run/user/{user}/noria", f"dev/shm/noria-{user}"))


def test_a_runtime_directory_of_another_user_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert tmp_path not in directory.default_directory()[0].parents


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.symlink_to(path.parent), "symbolic link"),
        (lambda path: path.touch(), "a file is in the way"),
        (lambda path: (path.mkdir(), path.chmod(0o770)), "others may write to it .mode 0770"),
        (lambda path: (path.mkdir(), path.chmod(0o702)), "others may write to it .mode 0702"),
    ],
)
def test_a_place_that_others_could_have_prepared_is_refused(tmp_path, monkeypatch, spoil, reason):
    path = tmp_path / "noria-1"
    spoil(path)
    monkeypatch.setattr(directory, "default_directory", lambda: (path, True))
    with pytest.raises(ConfigError, match=reason):
        locate(None)


def test_a_place_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "default_directory", lambda: (tmp_path, True))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        locate(None)


def test_a_named_directory_is_made_with_its_parents(tmp_path):
    found = locate(str(tmp_path / "a" / "b"))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (found, found.parent)] == [0o700] * 2
    assert locate(str(tmp_path / "a" / ".." / "a" / "b")) == found


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "no name"),
        ("file", "a file is in the way"),
        ("file/below", "a file is in the way"),
        ("dangling", "a file is in the way"),
        ("ring/x", "[Ll]oop|symbolic links"),
        ("n" * 300, "too long"),
        ("p/" * 3000, "too long"),
        ("nul\0", "null"),
    ],
)
def test_a_directory_that_cannot_be_is_refused_with_the_reason(tmp_path, name, reason):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "file")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    with pytest.raises(ConfigError, match=reason) as caught:
        locate(name and f"{tmp_path}/{name}")
    assert len(str(caught.value)) < 600


AS_NOBODY = """
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
from noria.model.errors import ConfigError
try:
    SharedFile.acquire(str(place), SIZE)
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("below", ["", "below"])
def test_a_directory_without_permission_is_refused(below):
    with tempfile.TemporaryDirectory() as top:  # pytest's own are closed to nobody
        Path(top).chmod(0o711)
        path = Path(top, "closed")
        path.mkdir()
        path.chmod(0o555)
        said = finish(start(AS_NOBODY, path / below))
    assert str(path / below) in said
    assert "permission" in said.lower()


def test_a_file_of_another_user_is_refused_with_its_name():
    with tempfile.TemporaryDirectory() as top:
        Path(top).chmod(0o777)
        Path(top, "data.mdb").touch()
        Path(top, "lock.mdb").touch(0)
        said = finish(start(AS_NOBODY, top))
    assert "lock.mdb" in said
    assert "Permission denied" in said


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/data", "ext4"),
        ("/srv/net/x", "nfs4"),
        ("/srv/network", "ext4"),
        ("/srv/a b/x", "fuse.sshfs"),
        ("/over", "tmpfs"),
    ],
)
def test_the_file_system_is_found_in_the_mount_table(path, kind):
    mounts = (
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "30 27 0:27 / /srv/net rw shared:1 - nfs4 host:/x rw\n"
        "31 27 0:28 / /srv/a\\040b rw - fuse.sshfs host:/x rw\n"
        "32 27 0:29 / /over rw - nfs host:/x rw\n"
        "33 32 0:30 / /over rw - tmpfs tmpfs rw\n"
    )
    assert directory._filesystem(Path(path), mounts) == kind
    assert directory._filesystem(Path(path), "") == ""


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    mounts = f"30 27 0:27 / {tmp_path} rw - fuse.sshfs host:/x rw\n"
    monkeypatch.setattr(directory, "_mounts", lambda: mounts)
    with pytest.raises(ConfigError, match=f"{tmp_path}.*network file system .fuse.sshfs"):
        locate(str(tmp_path))


# Forks


def in_child(work):
    """Fork, run `work` in the child, return what it returned there (a small number)."""
    child = os.fork()
    if child == 0:
        status = 255
        try:
            status = work()
        finally:
            os._exit(status)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("used", [False, True])
def test_workers_forked_from_one_process_count_together(opened, used):
    file = opened()
    if used:
        add(file)

    def work():
        for _ in range(500):
            add(file)
        return 7

    waits = [in_child(work) for _ in range(4)]
    for _ in range(500):
        add(file)
    assert [wait() for wait in waits] == [7] * 4
    assert read(file) == 2500 + used


def test_a_fork_while_threads_decide_loses_nothing_and_holds_up_nobody(opened):
    file, stop, failed = opened(), Event(), []

    def decide():
        try:
            while not stop.is_set():
                counts.append(add(file)[0])
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    counts = []
    threads = [Thread(target=decide) for _ in range(3)]
    for thread in threads:
        thread.start()

    def work():
        for _ in range(20):
            add(file)
        return 7

    for _ in range(15):
        assert in_child(work)() == 7
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert read(file) == len(counts) + 300
    assert len(set(counts)) == len(counts)


def fifty(place):
    file = SharedFile.acquire(place, SIZE)
    for _ in range(50):
        add(file)
    file.release()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_counts_together(place, opened, method):
    file = opened()
    add(file)
    context = multiprocessing.get_context(method)
    children = [context.Process(target=fifty, args=(str(place),)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * 3
    assert read(file) == 151


def test_a_fork_in_the_middle_of_a_transaction_leaves_the_child_without_store(
    opened, monkeypatch, caplog
):
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    file = opened()
    inside, go = Event(), Event()

    def decide():
        file.enter(None)
        with file.begin() as txn:
            inside.set()
            assert go.wait(30)
            txn.put(KEY, b"5")
        file.leave()

    thread = Thread(target=decide)
    thread.start()
    assert inside.wait(30)

    def work():
        with pytest.raises(StoreUnavailable, match="during a fork"):
            add(file)
        return 7

    assert in_child(work)() == 7
    assert "in use during a fork" in caplog.text
    go.set()
    thread.join()
    assert add(file)[0] == 6


def test_a_child_of_a_fork_in_c_opens_the_file_itself(opened):
    file = opened()
    add(file)
    child = ctypes.PyDLL(None).fork()  # no hook runs before it
    if child == 0:
        status = 255
        try:
            module._after_in_child()
            status = add(file)[0]
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert add(file)[0] == 3


# Killed processes

INCREMENT = """
import itertools
file = SharedFile.acquire(str(place), SIZE)
for n in itertools.count(1):
    add(file)
    add(file, b"own-%d" % os.getpid())
    os.pwrite(1, b"%20d" % n, 0)
"""


def test_a_killed_process_stops_nobody_and_spoils_nothing(place, tmp_path, opened):
    file = opened()
    running = []

    def launch(number):
        progress = tmp_path / f"progress-{number}"
        with progress.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", PRELUDE + INCREMENT, str(place)],
                stdout=out,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        running.append((process, progress))

    def done(progress):
        return int(progress.read_bytes() or 0)

    for number in range(3):
        launch(number)
    ended = []
    for number in range(3, 23):
        eventually(lambda: done(running[0][1]) > 50)
        process, progress = running.pop(0)
        process.kill()
        process.wait()
        ended.append((process.pid, done(progress)))
        before = read(file)
        eventually(lambda before=before: read(file) > before)
        launch(number)
    for process, progress in running:
        process.kill()
        process.wait()
        ended.append((process.pid, done(progress)))
    total = 0
    for pid, least in ended:
        own = read(file, b"own-%d" % pid)
        # What it had been told of counts; at most the one it was killed in counts besides.
        assert least <= own <= least + 1
        total += own
    assert total <= read(file) <= total + len(ended)
    assert file._env.info()["num_readers"] <= 1
    assert "(no active readers)" in file._env.readers()
    file.release()
    assert datafile._verify(place) is None
    assert damaged(place) == []


# Damage


def write(path, offset, content):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def cut(path, size):
    os.truncate(path, size)


def garble_record(key):
    def spoil(data):
        with (
            lmdb.open(str(data), subdir=False, lock=False, map_size=SIZE) as env,
            env.begin(write=True) as txn,
        ):
            value = bytearray(txn.get(key))
            value[9] ^= 1
            txn.put(key, bytes(value))
        os.truncate(data, SIZE)

    return spoil


DAMAGES = [
    lambda data: write(data, 0, b"\xff" * 4096),
    lambda data: write(data, 0, b"garbage" * 10000),
    lambda data: write(data, 2 * 4096, b"\xff" * 8 * 4096),
    lambda data: cut(data, 0),
    lambda data: cut(data, 100),
    lambda data: cut(data, SIZE - 4096),
    lambda data: cut(data, SIZE - 1),
    lambda data: (data.unlink(), data.mkdir()),
    lambda data: (data.rename(data.with_name("x")), data.symlink_to("x")),
    lambda data: (data.parent / "lock.mdb").unlink(),
    garble_record(BIRTH),
    garble_record(CLOCK),
]


@pytest.mark.parametrize("spoil", DAMAGES)
def test_a_damaged_file_is_set_aside_with_one_line_in_the_log(place, opened, caplog, spoil):
    file = opened()
    for number in range(300):
        add(file, b"key-%d" % number)
    file.release()
    spoil(place / "data.mdb")
    file = opened()
    assert add(file, b"key-7")[0] == 1
    (aside,) = damaged(place)
    (line,) = [record for record in caplog.records if record.name == "noria"]
    assert line.levelno == logging.ERROR
    assert str(aside) in line.getMessage()
    assert (place / "data.mdb").stat().st_size == SIZE


def test_a_file_of_a_newer_version_is_refused_and_left_alone(place, opened):
    opened().release()
    with lmdb.open(str(place), map_size=SIZE) as env, env.begin(write=True) as txn:
        body = bytearray(txn.get(BIRTH)[:-4])
        body[4] = 99
        txn.put(BIRTH, datafile.signed(bytes(body)))
    with pytest.raises(ConfigError, match="newer Noria"):
        opened()
    assert damaged(place) == []


def test_of_several_processes_that_start_on_a_damaged_file_one_sets_it_aside(place, opened):
    opened().release()
    write(place / "data.mdb", 2 * 4096, b"\xff" * 8 * 4096)
    code = """
import logging
logging.basicConfig()
file = SharedFile.acquire(str(place), SIZE)
for _ in range(50): add(file)
"""
    processes = [start(code, place) for _ in range(4)]
    logs = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum("set aside" in log for log in logs) == 1
    assert len(damaged(place)) == 1
    assert read(opened()) == 200


def test_verification_is_spared_only_after_a_clean_end(place, opened, monkeypatch):
    verified = []
    verify = datafile._verify
    monkeypatch.setattr(datafile, "_verify", lambda path: verified.append(1) or verify(path))
    opened().release()
    opened().release()
    assert verified == []
    write(place / "data.mdb", SIZE - 8, b"touched!")
    opened().release()
    assert len(verified) == 1
    process = start("add(SharedFile.acquire(str(place), SIZE)); os.kill(os.getpid(), 9)", place)
    process.communicate(timeout=30)
    assert add(opened())[0] == 2
    assert len(verified) == 2


def test_a_process_that_ends_by_itself_leaves_a_clean_file(place):
    finish(start("add(SharedFile.acquire(str(place), SIZE))", place))
    assert (place / "noria.clean").exists()


def test_an_error_of_lmdb_reopens_the_file_at_most_once_a_second(place, opened, monkeypatch):
    clock = [time.monotonic()]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    file = opened()
    add(file)
    error = file.failed(lmdb.CorruptedError("mdb_put", -30796))
    assert isinstance(error, StoreUnavailable)
    assert str(place) in str(error)
    with pytest.raises(StoreUnavailable, match="just now"):
        add(file)
    clock[0] += 1.01
    assert add(file)[0] == 2  # verified, found sound, kept
    assert damaged(place) == []


def test_damage_met_while_others_have_the_file_open_is_set_aside_for_all(
    place, opened, holder, caplog
):
    process = holder("add")
    file = opened()
    add(file)
    write(place / "data.mdb", 2 * 4096, b"\xff" * 6 * 4096)

    def count():
        try:
            found = add(file)[0]
            if not damaged(place):
                file.failed(lmdb.CorruptedError("mdb_get", -30796))  # LMDB did not look there
        except StoreUnavailable:
            return 0
        return found if damaged(place) else 0

    assert eventually(count) == 1
    assert len(damaged(place)) == 1
    assert "set aside" in caplog.text
    process.kill()


def test_an_error_about_one_key_reopens_nothing(opened):
    file = opened()
    env = file._env
    file.enter(None)
    with file.begin() as txn, pytest.raises(lmdb.BadValsizeError) as caught:
        txn.put(b"k" * 600, b"")
    file.leave()
    assert "shared store" in str(file.failed(caught.value))
    add(file)
    assert file._env is env


def test_a_decision_inside_a_decision_is_an_error_not_a_standstill(opened):
    file = opened()
    env = file._env
    file.enter(None)
    with file.begin(), pytest.raises(StoreUnavailable):  # as a signal handler may find it
        add(file)
    file.leave()
    assert add(file)[0] == 1
    assert file._env is env


# Files that go away


def remove(place):
    for path in place.iterdir():
        path.unlink()
    place.rmdir()


GONE = [
    remove,
    lambda place: (place / "data.mdb").unlink(),
    lambda place: (place / "lock.mdb").unlink(),
    lambda place: place.rename(place.with_name("moved")),
    lambda place: os.truncate(place / "data.mdb", SIZE - 4096),
]


@pytest.mark.parametrize("vanish", GONE)
def test_a_file_that_was_deleted_or_cut_short_is_noticed_within_a_second(place, opened, vanish):
    steady = [time.monotonic_ns()]
    file = opened(clocks=Clocks(steady=lambda: steady[0]))
    secret, (_, before) = file.secret, add(file)
    vanish(place)
    file._not_before = 0.0
    assert add(file)[0] == 2  # less than a second later: not looked yet
    steady[0] += 1_000_000_000
    assert add(file)[0] == 3
    count, after = add(file)
    assert count == 1
    assert after >= before
    # What was sealed for the file that is gone is nothing to this one.
    assert file.secret != secret
    assert finish(start("print(add(SharedFile.acquire(str(place), SIZE))[0])", place)) == "2\n"


def test_processes_on_a_pair_of_which_one_file_was_deleted_never_write_beside_each_other(
    place, opened, holder
):
    process = holder("add")  # idle, with the old pair
    (place / "lock.mdb").unlink()
    file = opened()
    for _ in range(20):
        add(file)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "1\n"  # in its own pair, which nobody shares
    assert read(file) == 20
    file.release()
    assert datafile._verify(place) is None


def test_the_default_directory_is_followed_when_it_changes(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    (tmp_path / "one").mkdir(0o700)
    (tmp_path / "two").mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "one"))
    steady = [time.monotonic_ns()]
    file = SharedFile.acquire(None, SIZE, Clocks(steady=lambda: steady[0]))
    try:
        add(file)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "two"))
        steady[0] += 2_000_000_000
        file._not_before = 0.0
        add(file)
        assert add(file)[0] == 1
        assert file.path == str(tmp_path / "two" / "noria")
    finally:
        file.release()


# The clock

NOW = 1_800_000_000 * SECOND
moments = st.integers(0, 10**16)


def clocks(wall=NOW, steady=0, boot=b"one"):
    return Clocks(lambda: wall * 1000, lambda: steady * 1000, lambda: boot)


def test_the_clock_is_the_wall_clock_when_the_file_is_made(opened):
    before = time.time_ns() // 1000
    now = opened().now()
    assert before - 1000 <= now <= time.time_ns() // 1000 + 1000


def test_processes_agree_whichever_side_of_a_step_of_the_wall_clock_they_started(place, opened):
    file = opened()
    code = """
from noria.stores.shared.clock import Clocks
step = int(sys.argv[2]) * 10**9
file = SharedFile.acquire(str(place), SIZE, Clocks(wall=lambda: time.time_ns() + step))
print(add(file)[1])
"""
    for step in (-3600, 3600):
        before = add(file)[1]
        there = int(finish(start(code, place, step)))
        assert before < there < add(file)[1]


def test_a_step_forward_is_followed_when_nobody_else_has_the_file_open(opened):
    opened(clocks=clocks()).release()
    file = opened(clocks=clocks(wall=NOW + 3600 * SECOND, steady=5))
    assert file.now() == NOW + 3600 * SECOND
    file.release()
    assert opened(clocks=clocks(wall=NOW, steady=9)).now() == NOW + 3600 * SECOND + 4


@pytest.mark.parametrize("boot", [b"two", b"one", b""])
def test_after_a_reboot_time_goes_on_where_it_was_or_at_the_wall_clock(opened, boot):
    opened(clocks=clocks(steady=900 * SECOND)).release()
    for wall in (NOW + 60 * SECOND, 0):
        file = opened(clocks=clocks(wall=wall, steady=5, boot=boot))
        assert file.now() >= max(NOW + 60 * SECOND, wall)
        file.release()


def test_the_time_reached_is_saved_once_a_second(opened):
    steady = [10**12]
    file = opened(clocks=Clocks(wall=lambda: NOW * 1000, steady=lambda: steady[0], boot=bytes))

    def saved():
        file.enter(None)
        with file.begin() as txn:
            raw = txn.get(CLOCK)
        file.leave()
        return Anchor.unpack(raw).last

    first = saved()
    for _ in range(3):
        steady[0] += 999_999_000 // 3
        add(file)
    assert saved() == first
    steady[0] += 1000
    assert add(file)[1] == saved() == first + SECOND


@given(moments, moments, st.booleans(), moments, moments, st.booleans())
def test_no_clock_and_no_reboot_makes_time_go_back(  # noqa: PLR0913
    wall, steady, same, later, on, alone
):
    first = clocks(wall, steady).anchor(0)
    reached = first._replace(last=first.last + 17)
    again = clocks(later, steady + on if same else on, b"one" if same else b"two")
    anchor = again.reanchor(reached, alone=alone)
    now = again.steady() // 1000 + anchor.offset
    if same:
        assert now >= steady + on + first.offset
    assert now >= first.last or same
    assert Anchor.unpack(anchor.pack()) == anchor
    assert Anchor.unpack(anchor.pack()[:-1] + b"?") in {None, anchor}


def test_an_interrupted_process_leaves_no_lock_on_the_directory(place, opened):
    process = start(
        """
from noria.stores.shared.datafile import gate
with gate(place):
    print("held", flush=True)
    sys.stdin.read()
""",
        opened().path,
    )
    assert process.stdout.readline() == "held\n"
    with pytest.raises(StoreUnavailable), datafile.gate(place, 0):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with datafile.gate(place, 5):
        pass
