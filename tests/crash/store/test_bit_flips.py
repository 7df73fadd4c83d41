"""Each bit of each byte is flipped: it is noticed, costs one batch at most, and nobody reads it."""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import structlog

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.files.epoch import KeptBroker
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.groups.offsets import KeptOffsets
from headrace_mq.broker.topics.kept import KeptTopic, KeptTopics
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SEGMENT_BYTES = 64 * 1024
FILLED_BYTES = 50_000
# Flips for each round that was asked for: 300 rounds are each 17th of all bits, an odd step that
# meets every bit of a byte; 5,300 are all of them.
FLIPS_PER_ROUND = 100
SEGMENT_HEADER_BYTES = 4_096


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each flip is logged, which would take most of the time here."""
    before = structlog.get_config()
    level = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=level)
    yield
    structlog.configure(**before)


class MemoryFiles(SystemFiles):
    """Files in memory: half a million starts in minutes."""

    def __init__(self, files: dict[Path, bytes] | None = None) -> None:
        self.files = {path: bytearray(content) for path, content in (files or {}).items()}
        self._opened: list[bytearray] = []

    def make_directory(self, path: Path) -> None:
        pass

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self.files if path.parent == directory)

    def open(self, path: Path, *, create: bool = False) -> int:
        if create:
            self.files[path] = bytearray()
        elif path not in self.files:
            raise FileNotFoundError(path)
        self._opened.append(self.files[path])
        return len(self._opened) - 1

    def close(self, fd: int) -> None:
        pass

    def size(self, fd: int) -> int:
        return len(self._opened[fd])

    def is_removed(self, fd: int) -> bool:
        return False

    def read(self, fd: int, at: int, length: int) -> bytes:
        return bytes(self._opened[fd][at : at + length])

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        content, new = self._opened[fd], b"".join(parts)
        content.extend(bytes(max(0, at + len(new) - len(content))))
        content[at : at + len(new)] = new
        return len(new)

    def allocate(self, fd: int, length: int) -> None:
        content = self._opened[fd]
        content.extend(bytes(max(0, length - len(content))))

    def truncate(self, fd: int, length: int) -> None:
        del self._opened[fd][length:]
        self.allocate(fd, length)

    def next_data(self, fd: int, at: int) -> int | None:
        return at if at < self.size(fd) else None

    def sync(self, fd: int) -> int:
        return 0

    def rename(self, old: Path, new: Path) -> None:
        self.files[new] = self.files.pop(old)

    def remove(self, path: Path) -> None:
        del self.files[path]

    def sync_directory(self, path: Path) -> None:
        pass

    def lock(self, fd: int) -> bool:
        return True


class Span(NamedTuple):
    """The bytes of a batch in its segment's file, and which batch it is."""

    begin: int
    end: int
    batch: tuple[int, int]


class Image(NamedTuple):
    """A store's files, what they hold, and where."""

    directory: Path
    files: dict[Path, bytes]
    ledger: Any
    spans: list[Span]
    segment: Path
    used: int


def store_in(directory: Path, files: SystemFiles) -> MessageStore:
    settings = StoreSettings(directory=directory, segment_bytes=SEGMENT_BYTES)
    return MessageStore(settings, files=files)


async def filled(directory: Path, ledger: Any, *, clean: bool) -> Image:
    """A store whose first segment is almost full; closed cleanly, or as if killed."""
    files, promised = MemoryFiles(), ledger(7)
    store = store_in(directory, files)
    store.open()
    held = 0
    while held < FILLED_BYTES:
        await promised.send(store, new=2)
        held = sum(len(body) for q in (1, 2) for batch in promised.sent[q] for body in batch)
    spans = []
    for queue in (1, 2):
        for batch in store.read(QueueRef("t", queue), 0, 1 << 30):
            header = read_header(batch)
            begin = SEGMENT_HEADER_BYTES + header.position
            spans.append(Span(begin, begin + header.length, (queue, header.base_offset)))
    kept = {path: bytes(content) for path, content in files.files.items()}
    await store.aclose()
    if clean:
        kept = {path: bytes(content) for path, content in files.files.items()}
    (segment,) = [path for path in kept if path.parent.name == "forever"]
    used = max(span.end for span in spans)
    return Image(directory, kept, promised, spans, segment, used)


def missing(store: MessageStore, promised: Any) -> tuple[set[tuple[int, int]], int]:
    """Reads everything; returns the batches that are not there, and how many are wrong."""
    lost, wrong = set(), 0
    for queue, batches in promised.sent.items():
        found = promised.held(store, queue)
        at = 0
        for bodies in batches:
            there = found.pop(at, None)
            if there is None:
                lost.add((queue, at))
            else:
                wrong += there != bodies
            at += len(bodies)
        wrong += len(found)
    return lost, wrong


def after_a_flip(image: Image, path: Path, bit: int) -> str:
    """Flips one bit and starts: says how that ended, or `undetected`, `wrong` or `lost`."""
    files = MemoryFiles(image.files)
    files.files[path][bit // 8] ^= 1 << bit % 8
    store = store_in(image.directory, files)
    try:
        store.open()
    except (DataCorrupt, FormatTooNew):
        return "refused"
    lost, wrong = missing(store, image.ledger)
    hit = {s.batch for s in image.spans if path == image.segment and s.begin <= bit // 8 < s.end}
    if wrong:
        return "wrong_bodies"
    if not lost <= hit:
        return "lost_beside_the_flip"
    if store.damage:
        return "reported"
    if path == image.segment and bit // 8 >= image.used:
        return "harmless_in_reserved_space"
    return "undetected"


def bits_of(content: bytes, flips: int) -> range:
    """Every bit, or evenly chosen ones; an odd step meets every bit of a byte."""
    bits = len(content) * 8
    return range(0, bits, bits // flips | 1 if flips < bits else 1)


@pytest.mark.timeout(3_600)
async def test_every_flipped_bit_of_a_segment_is_noticed_and_costs_one_batch_at_most(
    tmp_path: Path, ledger: Any, rounds: Callable[..., int], figures: Callable[..., None]
) -> None:
    image = await filled(tmp_path / "store", ledger, clean=True)
    bits = bits_of(image.files[image.segment], rounds(30) * FLIPS_PER_ROUND)
    ends = Counter(after_a_flip(image, image.segment, bit) for bit in bits)
    figures("flipped bits of a segment", flips=len(bits), **ends)
    assert ends.keys() <= {"reported", "refused", "harmless_in_reserved_space"}
    # Only a version that looks newer is refused, and no byte behind the log's end is counted in.
    assert ends["refused"] <= 16
    reserved = sum(1 for bit in bits if bit // 8 >= image.used)
    assert ends["harmless_in_reserved_space"] == reserved


async def test_every_flipped_bit_of_the_checkpoint_is_noticed_and_costs_nothing(
    tmp_path: Path, ledger: Any, figures: Callable[..., None]
) -> None:
    image = await filled(tmp_path / "store", ledger, clean=True)
    path = image.directory / "store.checkpoint"
    bits = bits_of(image.files[path], 1 << 30)
    ends = Counter(after_a_flip(image, path, bit) for bit in bits)
    figures("flipped bits of the checkpoint", flips=len(bits), **ends)
    # Its copy tells the same; no bit makes it look like a newer version.
    assert ends.keys() == {"reported"}


async def test_a_flipped_bit_after_a_kill_is_noticed_below_the_last_group(
    tmp_path: Path, ledger: Any, rounds: Callable[..., int], figures: Callable[..., None]
) -> None:
    image = await filled(tmp_path / "store", ledger, clean=False)
    bits = bits_of(image.files[image.segment], rounds(25) * 20)
    last_group = image.files[image.segment].rindex(b"HRG1", 0, image.used)
    ends: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for bit in bits:
        ends[last_group <= bit // 8 < image.used][after_a_flip(image, image.segment, bit)] += 1
    # Without a clean end nothing tells a bad last batch from one that was torn: it is cut off.
    cut_off = ends[True].pop("undetected", 0)
    told = ends[False] + ends[True]
    figures("flipped bits after a kill", flips=len(bits), cut_off_as_torn=cut_off, **told)
    assert cut_off + told.total() == len(bits)
    assert ends[False].keys() <= {"reported", "refused", "harmless_in_reserved_space"}
    assert ends[True].keys() <= {"reported"}


async def test_a_bit_that_flips_while_the_store_is_open_is_noticed_by_the_reader(
    tmp_path: Path, ledger: Any, rounds: Callable[..., int], figures: Callable[..., None]
) -> None:
    image = await filled(tmp_path / "store", ledger, clean=True)
    chosen = random.Random(8)
    ends: Counter[str] = Counter()
    for _ in range(rounds(100)):
        span = chosen.choice(image.spans)
        files = MemoryFiles(image.files)
        store = store_in(image.directory, files)
        store.open()
        files.files[image.segment][chosen.randrange(span.begin, span.end)] ^= 1 << chosen.randrange(
            8
        )
        lost, wrong = missing(store, image.ledger)
        ends["wrong_bodies"] += wrong
        ends["reported"] += lost == {span.batch} and len(store.damage) == 1
    figures("flipped bits under an open store", flips=rounds(100), **ends)
    assert ends == {"wrong_bodies": 0, "reported": rounds(100)}


KEPT: list[tuple[str, Any]] = [
    (
        "topics.json",
        KeptTopics({"bank": KeptTopic(4, "forever"), "%RETRY%g": KeptTopic(1, "transient")}),
    ),
    ("offsets.json", KeptOffsets({"group": {"bank": {0: 17, 1: 4}, "other": {0: 0}}})),
    ("broker.json", KeptBroker(3)),
]


@pytest.mark.parametrize(("name", "value"), KEPT, ids=[name for name, _ in KEPT])
def test_every_flipped_bit_of_the_brokers_files_is_refused(
    tmp_path: Path, figures: Callable[..., None], name: str, value: msgspec.Struct
) -> None:
    files = MemoryFiles()
    kept = MetadataFile(tmp_path / name, type(value), repair="Restore it.", files=files)
    kept.write(value)
    assert kept.read() == value
    sound = bytes(files.files[tmp_path / name])
    ends: Counter[str] = Counter()
    for bit in bits_of(sound, 1 << 30):
        files.files[tmp_path / name] = content = bytearray(sound)
        content[bit // 8] ^= 1 << bit % 8
        try:
            kept.read()
            ends["undetected"] += 1
        except (DataCorrupt, FormatTooNew):
            ends["refused"] += 1
    figures(f"flipped bits of {name}", flips=len(sound) * 8, **ends)
    assert ends == {"refused": len(sound) * 8}


async def test_a_store_that_checks_nothing_would_be_noticed(
    tmp_path: Path, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = await filled(tmp_path / "store", ledger, clean=True)
    for module in ("log.recovery", "log.batch_reader", "segment.log_walk", "index.segment_index"):
        for check in ("check_head", "check_body", "check_batch"):
            monkeypatch.setattr(
                f"headrace_mq.store.{module}.{check}", lambda *args: None, raising=False
            )
    span = image.spans[3]
    ends = {after_a_flip(image, image.segment, at * 8) for at in range(span.begin, span.end, 50)}
    assert ends & {"wrong_bodies", "undetected"}
