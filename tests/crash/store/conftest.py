"""What crash tests of the store share: figures, faulty disks, and what was promised."""

import errno
import functools
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_columns, encode_batch, read_header
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.segment import segment

SECTOR_BYTES = 512


# ---- how much, and what came out -------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--count", type=int, help="rounds of each crash test; prints figures (make test-crash)"
    )


@pytest.fixture
def rounds(pytestconfig: pytest.Config) -> Callable[..., int]:
    """Returns how many rounds to run: the number for every day, or what was asked for.

    Of that a test takes its `share`: where a round is dear, so that all of them end in time, or
    where several tests add up.
    """
    asked = pytestconfig.getoption("--count", default=None)
    return lambda quick, share=1.0: quick if asked is None else max(1, round(asked * share))


@pytest.fixture
def thorough(pytestconfig: pytest.Config) -> bool:
    """Whether a count was asked for: then times are measured too."""
    return pytestconfig.getoption("--count", default=None) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives the tests here an hour each where a count was asked for."""
    if config.getoption("--count", default=None) is not None:
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.timeout(3_600), append=False)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Takes the figures of a test: `figures("kind", rounds=300, lost_acks=0)`."""
    # Properties travel with the test's report, so that tests may run in several processes.
    kept = request.node.user_properties
    return lambda kind, **numbers: kept.append(("figures", {"kind": kind} | numbers))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    kept = [
        line
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call"
        for name, line in report.user_properties
        if name == "figures"
    ]
    if config.getoption("--count", default=None) is None or not kept:
        return
    terminalreporter.section("figures")
    total: Counter[str] = Counter()
    slowest = 0.0
    for line in kept:
        terminalreporter.write_line(json.dumps(line))
        slowest = max(slowest, line.get("seconds_to_resume", 0.0))
        total.update({k: n for k, n in line.items() if isinstance(n, int)})
    terminalreporter.write_line(
        json.dumps({"kind": "total"} | total | {"seconds_to_resume": round(slowest, 3)})
    )


# ---- disks -----------------------------------------------------------------------------------


# Made from the log: no message waits for them, so no fault of theirs may refuse one.
DERIVED = {".index", ".keys"}
PORT = (
    "make_directory", "names", "open", "close", "size", "read", "read_cached", "write", "allocate", "truncate",
    "next_data", "sync", "rename", "remove", "sync_directory", "lock",
)  # fmt: skip


def one_at_a_time(cls: type[Any]) -> type[Any]:
    """Makes every operation of the port serial, because the store writes its index in a thread.

    A thread that an abandoned store left behind is refused: in a killed process it would be gone.
    """
    for name in PORT:
        setattr(cls, name, _serial(getattr(cls, name)))
    return cls


def _serial(operation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operation)
    def serial(self: Any, *arguments: Any, **options: Any) -> Any:
        thread = threading.current_thread()
        with self.serial:
            if thread in self.gone:
                raise OSError(errno.EBADF, "the process is gone")
            self.threads.add(thread)
            return operation(self, *arguments, **options)

    return serial


@one_at_a_time
class FaultyFiles(SystemFiles):
    """The machine's files, which fail where a test wants it.

    Attributes:
        steps: how many changes were asked for so far.
        fault: asked before each with its number and kind; raises what the disk shall answer.
        torn_bytes: how much of a write that fails is written all the same.
        longest_write: bytes that one write takes at most.
        dead: whether the power is gone.
    """

    def __init__(self, fault: Callable[[int, str], None] | None = None) -> None:
        self.steps = 0
        self.fault = fault or (lambda step, kind: None)
        self.torn_bytes = 0
        self.longest_write = 1 << 40
        self.dead = False
        self.serial = threading.RLock()
        self.threads: set[threading.Thread] = set()
        self.gone: set[threading.Thread] = set()
        self._open: set[int] = set()
        self._derived: set[int] = set()

    def make_directory(self, path: Path) -> None:
        self._step("make_directory")
        super().make_directory(path)

    def open(self, path: Path, *, create: bool = False) -> int:
        derived = path.suffix in DERIVED
        if create:
            self._step("create derived" if derived else "create")
        fd = super().open(path, create=create)
        self._open.add(fd)
        if derived:
            self._derived.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._open.discard(fd)
        self._derived.discard(fd)
        super().close(fd)

    def abandon(self) -> None:
        """Closes every file and gives up the lock, as the end of a killed process does."""
        with self.serial:
            self.gone |= self.threads - {threading.current_thread()}
            for fd in self._open:
                os.close(fd)
            self._open.clear()
            self._derived.clear()

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        try:
            self._step("write derived" if fd in self._derived else "write")
        except OSError:
            super().write(fd, at, [b"".join(parts)[: self.torn_bytes]])
            raise
        if sum(map(len, parts)) > self.longest_write:
            parts = [b"".join(parts)[: self.longest_write]]
        return super().write(fd, at, parts)

    def allocate(self, fd: int, length: int) -> None:
        self._step("allocate")
        super().allocate(fd, length)

    def truncate(self, fd: int, length: int) -> None:
        self._step("truncate")
        super().truncate(fd, length)

    def sync(self, fd: int) -> int:
        # Not synced for real: these tests read what was written, through the page cache.
        self._step("sync")
        return 0

    def rename(self, old: Path, new: Path) -> None:
        self._step("rename")
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._step("remove")
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory")

    def _step(self, kind: str) -> None:
        self.steps += 1
        self.fault(self.steps, kind)


@pytest.fixture(scope="module", autouse=True)
def small_steps() -> Iterator[None]:
    """Segments of 64 KiB grow as large ones do: in several steps, each before the write that needs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "RESERVED_FIRST_BYTES", 8 << 10)
        patch.setattr(segment, "RESERVED_STEP_BYTES", 16 << 10)
        patch.setattr(segment, "ZEROS_AHEAD_BYTES", 3 << 10)
        yield


class PowerCut(OSError):
    """The disk is gone."""


@one_at_a_time
class PowerCutFiles(FaultyFiles):
    """Beside the machine's files, what a disk would hold after a power cut.

    A disk keeps what was synced. Of the rest it keeps any sectors and either length of a file,
    and any of the names that were made, replaced or removed since their directory was synced:
    more disorder than a journal allows.

    Args:
        root: a directory whose present content is durable.

    Attributes:
        cut_at: the step during which the power goes.
        syncs_left: the power goes during the sync after so many.
        write_error: what the next writes fail with, after some bytes.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.cut_at = 0
        self.syncs_left: int | None = None
        self.write_error: OSError | None = None
        self.torn_bytes = 700
        self._durable: dict[int, bytes] = {}
        self._handles: dict[int, int] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._renamed: dict[Path, list[dict[str, int | None]]] = {}
        self._made: set[Path] = set()
        for directory, _, names in os.walk(root):
            self._names[Path(directory)] = {
                name: (Path(directory) / name).stat().st_ino for name in names
            }
            for name in names:
                os.close(self._hold(os.open(Path(directory) / name, os.O_RDWR), synced=True))

    def make_directory(self, path: Path) -> None:
        new = not path.exists()
        super().make_directory(path)
        self._names.setdefault(path, {})
        if new:
            self._made.add(path)
        self._end_step()

    def open(self, path: Path, *, create: bool = False) -> int:
        known = path.exists()
        fd = self._hold(super().open(path, create=create), synced=False)
        if not known:
            self._rename(path.parent, {path.name: os.fstat(fd).st_ino})
        if create:
            self._end_step(fd)
        return fd

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        written = super().write(fd, at, parts)
        self._end_step()
        return written

    def allocate(self, fd: int, length: int) -> None:
        super().allocate(fd, length)
        self._end_step()

    def truncate(self, fd: int, length: int) -> None:
        super().truncate(fd, length)
        self._end_step()

    def sync(self, fd: int) -> int:
        super().sync(fd)
        self._end_step()
        inode = os.fstat(fd).st_ino
        self._durable[inode] = self._content(inode)
        return 0

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self._rename(new.parent, {old.name: None, new.name: new.stat().st_ino})
        self._end_step()

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._rename(path.parent, {path.name: None})
        self._end_step()

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self._end_step()
        self._made = {made for made in self._made if made.parent != path}
        for change in self._renamed.pop(path, []):
            self._apply(path, change, self._names)

    def image(self, target: Path, chosen: random.Random) -> None:
        """Writes what the disk may hold now into a new directory."""
        names = {directory: dict(found) for directory, found in self._names.items()}
        lost = {made for made in sorted(self._made) if chosen.random() < 0.5}
        for directory, changes in self._renamed.items():
            for change in changes:
                if chosen.random() < 0.5:
                    self._apply(directory, change, names)
        target.mkdir(parents=True)
        for directory, found in names.items():
            if directory.is_relative_to(self.root) and not lost & {directory, *directory.parents}:
                place = target / directory.relative_to(self.root)
                place.mkdir(parents=True, exist_ok=True)
                for name, inode in found.items():
                    (place / name).write_bytes(self._after_cut(inode, chosen))

    def forget(self) -> None:
        """Closes what this holds beside the program under test."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def _step(self, kind: str) -> None:
        if self.syncs_left is not None and kind in {"sync", "sync_directory"}:
            self.syncs_left -= 1
            self.dead = self.dead or self.syncs_left < 0
        if self.dead:
            raise PowerCut("the power is gone")
        super()._step(kind)
        if kind == "write" and self.write_error is not None:
            raise self.write_error

    def _end_step(self, fd: int | None = None) -> None:
        # The change is under way: how much of it the disk keeps is for `image` to choose.
        if self.steps == self.cut_at:
            self.dead = True
            if fd is not None:
                self.close(fd)
            raise PowerCut("the power is gone")

    def _hold(self, fd: int, *, synced: bool) -> int:
        inode = os.fstat(fd).st_ino
        if inode not in self._handles:
            # Opened anew: a duplicate would share the lock and keep it.
            self._handles[inode] = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
            self._durable[inode] = self._content(inode) if synced else b""
        return fd

    def _content(self, inode: int) -> bytes:
        handle = self._handles[inode]
        return os.pread(handle, os.fstat(handle).st_size, 0)

    def _rename(self, directory: Path, change: dict[str, int | None]) -> None:
        self._renamed.setdefault(directory, []).append(change)

    @staticmethod
    def _apply(
        directory: Path, change: dict[str, int | None], names: dict[Path, dict[str, int]]
    ) -> None:
        for name, inode in change.items():
            found = names.setdefault(directory, {})
            found.pop(name, None)
            if inode is not None:
                found[name] = inode

    def _after_cut(self, inode: int, chosen: random.Random) -> bytes:
        durable, visible = self._durable[inode], self._content(inode)
        length = len(chosen.choice([durable, visible]))
        merged = bytearray(durable[:length].ljust(length, b"\0"))
        newer = visible[:length].ljust(length, b"\0")
        share = chosen.choice([0.1, 0.5, 0.9])
        for at in range(0, length, SECTOR_BYTES):
            if chosen.random() < share:
                merged[at : at + SECTOR_BYTES] = newer[at : at + SECTOR_BYTES]
        return bytes(merged)


@pytest.fixture
def faulty_files() -> type[FaultyFiles]:
    return FaultyFiles


@pytest.fixture
def power_cut_files() -> Iterator[Callable[[Path], PowerCutFiles]]:
    made: list[PowerCutFiles] = []

    def make(root: Path) -> PowerCutFiles:
        made.append(PowerCutFiles(root))
        return made[-1]

    yield make
    for files in made:
        files.forget()


# ---- what was promised -----------------------------------------------------------------------

Bodies = tuple[bytes, ...]


class Ledger:
    """One producer per queue: what it sent, in order, and how much of that was acknowledged.

    Attributes:
        sent: the batches of each queue, every one sent with its own sequence.
        acked: how many of them, from the first, were acknowledged.
    """

    QUEUES = 3

    def __init__(self, seed: int) -> None:
        self._chosen = random.Random(seed)
        self.sent: dict[int, list[Bodies]] = {queue: [] for queue in range(self.QUEUES)}
        self.acked = dict.fromkeys(self.sent, 0)

    async def send(self, store: MessageStore, *, new: int = 4) -> None:
        """Sends again what was not acknowledged, and up to so many new batches.

        Raises what `append` and `durable` raise; then nothing of it counts as acknowledged.
        """
        for queue, batches in self.sent.items():
            for number in range(self.acked[queue], len(batches)):
                self._append(store, queue, number)
        for _ in range(self._chosen.randint(1, new) if new else 0):
            queue = self._chosen.randrange(self.QUEUES)
            sizes = [self._chosen.randint(0, 3_000) for _ in range(self._chosen.randint(1, 3))]
            self.sent[queue].append(tuple(map(self._chosen.randbytes, sizes)))
            self._append(store, queue, len(self.sent[queue]) - 1)
        reached = {queue: len(batches) for queue, batches in self.sent.items()}
        await store.durable()
        self.acked = reached

    def _append(self, store: MessageStore, queue: int, number: int) -> None:
        first = sum(map(len, self.sent[queue][:number]))
        batch = encode_batch(
            QueueRef("t", queue),
            Columns([], [], [], list(self.sent[queue][number]), []),
            born_first_ms=0,
            producer_id=queue + 1,
            first_sequence=first,
        )
        appended = store.append(batch, retention="forever" if queue else "transient")
        # A repeated batch that is long forgotten has no place any more.
        assert appended.base_offset == first or appended == (-1, True)

    @staticmethod
    def held(store: MessageStore, queue: int) -> dict[int, Bodies]:
        """Reads all batches of a queue, by their first offset."""
        found = {}
        at, end = store.range(QueueRef("t", queue))
        while at < end and (batches := store.read(QueueRef("t", queue), at, 20_000)):
            for batch in batches:
                header = read_header(batch)
                found[header.base_offset] = tuple(decode_columns(batch, header).bodies)
                at = header.next_offset
        return found

    def judge(self, store: MessageStore) -> Counter[str]:
        """Counts what must not be: lost acknowledgements, wrong bodies, batches nobody sent."""
        faults: Counter[str] = Counter()
        for queue, batches in self.sent.items():
            found = self.held(store, queue)
            at = 0
            for number, bodies in enumerate(batches):
                there = found.pop(at, None)
                faults["lost_acks"] += there is None and number < self.acked[queue]
                faults["wrong_bodies"] += there is not None and there != bodies
                at += len(bodies)
            faults["phantoms"] += len(found)
        faults["damage"] += len(store.damage)
        return +faults

    @property
    def messages(self) -> int:
        """How many messages were acknowledged."""
        return sum(len(b) for q, batches in self.sent.items() for b in batches[: self.acked[q]])


@pytest.fixture
def ledger() -> type[Ledger]:
    return Ledger
