"""
A folder of exported events: parts that appear whole, each going on where the one before ends.

    DIR/export-000001/export.json                      what is in it, and the offsets it reaches
    DIR/export-000001/messages/queue-000.parquet       messages as the topic holds them
    DIR/export-000001/events/Deposited/queue-000-v1.parquet   events of a type, fields as columns
    DIR/export-000001/versions/queue-000.parquet       the last version of each aggregate met
    DIR/.writing                                       a part that is not finished; never read

A part is written under the last name, flushed to disk, and then renamed, which happens or does not.
Used by `analysis.export`, which writes parts, and by `executor.fold`, which reads messages from
them instead of from the broker. It must not know Spark or what events mean.
"""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace._runtime.file_lock import take_file_lock
from headrace._runtime.private_files import make_folder, open_new
from headrace.errors import ProjectionError
from headrace.spark.held_offsets import check_follows, next_offsets
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice

__all__ = [
    "ArchiveFile",
    "ExportedPart",
    "FileDigest",
    "after_archive",
    "archived_in",
    "check_begins",
    "check_file",
    "check_messages",
    "check_whole",
    "counts_of",
    "digest_of",
    "digests_of",
    "ends_of",
    "exported_parts",
    "files_of",
    "finish_part",
    "flush",
    "held_with",
    "identity_of",
    "known_epochs",
    "manifest_of",
    "message_files",
    "messages_at_once",
    "parquet_at",
    "part_folder",
    "parts_of",
    "queue_file",
    "read_archived",
    "writing_part",
]

_PART: Final = "export-{:06}"
_MANIFEST: Final = "export.json"
_WRITING: Final = ".writing"
# Messages read from a file at once: enough to make its fixed costs vanish, a few MB of memory; and about
# how many bytes of them, where they are large.
_BATCH_MESSAGES: Final = 8_192
_BATCH_BYTES: Final = 16 << 20


class ArchiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one queue in one part: offsets from `start` to before `end`."""

    path: str
    queue_id: int
    start: int
    end: int


class FileDigest(msgspec.Struct, frozen=True, kw_only=True):
    """What a file was when it was exported: how many bytes, and their SHA-256 in hexadecimal."""

    bytes: int
    sha256: str


class ExportedPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one export wrote; also its report.

    Attributes:
        number: of the part, from 1; 0: there was nothing to write.
        app: the application whose events they are.
        topic: where they come from.
        start: the first offset of each queue.
        end: the offset of each queue at which the next part begins.
        messages: how many were written.
        events: how many of each type, in the version that the application has now.
        unknown: events that the application has no class for, by name and version; their messages
            are kept.
        left_out: aggregates with a stream that does not decode, and what is the matter: its events from
            there on are in no part, their messages are.
        duplicates: streams that stood in the topic before.
        gaps: places where a later version stood before an earlier one.
        filled: streams that the topic lacked and the event store had.
        bytes: of all files.
        seconds: how long it took.
        vouched: an event store told which messages are its own; the others are no typed events.
        files: the digest of each file, by its path in the part; parts of older versions have none.
        identity: the UUID that the topic got when it was made; empty: an older version has written this.
        epochs: of each queue's brokers before it was read; none in parts of older versions.
    """

    number: int
    app: str
    topic: str
    start: dict[int, int]
    end: dict[int, int]
    messages: int = 0
    events: dict[str, int] = {}
    unknown: dict[str, int] = {}
    left_out: dict[str, str] = {}
    duplicates: int = 0
    gaps: int = 0
    filled: int = 0
    bytes: int = 0
    seconds: float = 0.0
    vouched: bool = False
    files: dict[str, FileDigest] = {}
    identity: str = ""
    epochs: dict[int, int] = {}

    def to_json(self) -> str:
        """Returns the part's description as one line of JSON, without its files."""
        told = msgspec.to_builtins(self)
        del told["files"]
        return msgspec.json.encode(told).decode()


_decode = msgspec.json.Decoder(ExportedPart).decode


def exported_parts(folder: Path) -> list[ExportedPart]:
    """Returns the parts of a folder, oldest first; none where nothing was exported.

    Raises:
        ProjectionError: a part is missing or unreadable, or parts do not follow each other.
    """
    parts: list[ExportedPart] = []
    for number, path in enumerate(sorted(folder.glob("export-*")), start=1):
        try:
            part = _decode((path / _MANIFEST).read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise ProjectionError(f"{path} is no exported part: {error}") from error
        before = parts[-1] if parts else part
        follows = all(part.start.get(queue) == end for queue, end in before.end.items())
        if part.number != number or part.topic != before.topic or (parts and not follows):
            raise ProjectionError(
                f"{path} does not follow the part before it in {folder}; put the missing parts back,"
                " or export into an empty folder"
            )
        parts.append(part)
    return parts


def parts_of(folder: Path, topic: str) -> list[ExportedPart]:
    """Returns the parts of a folder that holds events of a topic, oldest first.

    Raises:
        ProjectionError: nothing was exported into the folder, or another topic, or parts are missing.
    """
    parts = exported_parts(folder)
    if not parts:
        raise ProjectionError(
            f"{folder} holds no exported events; write some with `headrace events export`"
        )
    if parts[0].topic != topic:
        raise ProjectionError(f"{folder} holds events of {parts[0].topic}, not of {topic}")
    return parts


def counts_of(parts: Sequence[ExportedPart]) -> Counter[str]:
    """Returns what the gate counted when parts were exported: `events`, `duplicates`, `gaps`, `filled`."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts["events"] += sum(part.events.values()) + sum(part.unknown.values())
        for name in ("duplicates", "gaps", "filled"):
            counts[name] += getattr(part, name)
    return counts


def digests_of(part: Path) -> dict[str, FileDigest]:
    """Returns the digest of each file of Parquet below a folder, by its path in there."""
    return {
        path.relative_to(part).as_posix(): digest_of(path)
        for path in sorted(part.rglob("*.parquet"))
    }


def check_file(path: Path, digest: FileDigest) -> None:
    """Checks that a file is what was exported: it is read once, at some GB a second.

    Raises:
        ProjectionError: it is not there, or it is another one.
    """
    try:
        found = digest_of(path)
    except OSError as error:
        raise ProjectionError(f"{path} cannot be read: {error}") from error
    if found != digest:
        raise ProjectionError(
            f"{path} is not the file that was exported: its SHA-256 is {found.sha256}, and export.json"
            f" says {digest.sha256}; restore it from a copy, or export into an empty folder"
        )


def digest_of(path: Path) -> FileDigest:
    """Returns the digest of a file as it is now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileDigest(bytes=file.tell(), sha256=digest)


def files_of(folder: Path, topic: str) -> tuple[ArchiveFile, ...]:
    """Returns the files with the messages of a topic, in the order of their offsets, each checked.

    Raises:
        ProjectionError: nothing was exported into the folder, or another topic; or parts or files are
            missing, or not what was exported.
    """
    parts = parts_of(folder, topic)
    check_messages(folder, parts)
    return message_files(folder, parts)


def message_files(folder: Path, parts: Sequence[ExportedPart]) -> tuple[ArchiveFile, ...]:
    """Returns the files with the messages of parts, in the order of their offsets, unchecked."""
    return tuple(
        ArchiveFile(
            path=str(queue_file(part_folder(folder, part.number), "messages", queue).absolute()),
            queue_id=queue,
            start=part.start[queue],
            end=end,
        )
        for part in parts
        for queue, end in sorted(part.end.items())
        if part.start[queue] < end
    )


def check_messages(folder: Path, parts: Sequence[ExportedPart]) -> None:
    """Checks that the files with the messages of parts are what was exported.

    Raises:
        ProjectionError: one is missing, or not what was exported.
    """
    for part in parts:
        for name, digest in part.files.items():
            if name.startswith("messages/"):
                check_file(part_folder(folder, part.number) / name, digest)


def queue_file(part: Path, kind: str, queue_id: int) -> Path:
    """Returns where a part keeps what it has of a queue."""
    return part / kind / f"queue-{queue_id:03}.parquet"


def held_with(files: Sequence[ArchiveFile], held: Sequence[QueueRange]) -> list[QueueRange]:
    """Returns the ranges of queues that broker and files hold together.

    A queue that was deleted since is in the files alone.

    Raises:
        ProjectionError: offsets between the two are in neither, or the files go beyond the topic.
    """
    together: list[QueueRange] = []
    for one in held:
        own = [file for file in files if file.queue_id == one.queue_id]
        if own:
            check_follows(one, own[-1].end)
        first = min([one.first, *(file.start for file in own)])
        together.append(msgspec.structs.replace(one, first=first))
    there = {one.queue_id for one in held}
    for queue_id in sorted({file.queue_id for file in files} - there if held else ()):
        own = [file for file in files if file.queue_id == queue_id]
        together.append(QueueRange(held[0].topic, queue_id, own[0].start, own[-1].end))
    return together


def check_whole(held: Sequence[QueueRange]) -> None:
    """Checks that the broker holds a topic from its first message on.

    Raises:
        ProjectionError: it does not; says where the others are.
    """
    for one in held:
        if one.has_lost(0):
            raise ProjectionError(
                f"{one.topic}/{one.queue_id} begins at offset {one.first}: earlier messages were trimmed"
                " (`headrace history trim`); their events are in the folder of sealed history, in"
                " events/TYPE/"
            )


def check_begins(
    projection: str, held: Sequence[QueueRange], begins: Mapping[tuple[str, int], int]
) -> None:
    """Checks that broker and files hold what a rebuild folds.

    Args:
        projection: its name.
        held: what they hold together.
        begins: where it begins, of each queue; 0 for a queue that is left out.

    Raises:
        ProjectionError: they begin later; says what to do.
    """
    for one in held:
        begin = begins.get((one.topic, one.queue_id), 0)
        if one.has_lost(begin):
            raise ProjectionError(
                f"projection {projection}: {one.topic}/{one.queue_id} begins at offset {one.first}, so"
                f" that events from {begin} on are gone; build the rows from sealed history (`headrace"
                f" projection rebuild {projection} --from-export DIR`) or from the event store"
                " (`--from store`)"
            )


def read_archived(
    files: Sequence[ArchiveFile], piece: QueueSlice
) -> Iterator[tuple[int, list[tuple[int, str, bytes]]]]:
    """Yields what files hold of a slice, without rejections.

    Yields:
        When messages were stored, in ms since 1970 UTC, and of each its offset, key and body.

    Raises:
        ProjectionError: a file cannot be read here.
    """
    for file in files:
        if file.queue_id != piece.queue.queue_id or file.start >= piece.end:
            continue
        if file.end <= piece.start:
            continue
        try:
            with pq.ParquetFile(file.path) as parquet:
                for batch in parquet.iter_batches(
                    messages_at_once(parquet.metadata),
                    columns=["offset", "key", "headers", "body", "stored_at"],
                ):
                    yield from _moments(batch, piece)
        except (OSError, pa.ArrowException) as error:
            raise ProjectionError(
                f"{file.path} cannot be read: {error}; every Spark executor has to see the folder of"
                " exported events under the same path"
            ) from error


def messages_at_once(stored: pq.FileMetaData) -> int:
    """Returns how many messages of a file to read at once, so that they take some MB of memory."""
    size: int = sum(
        stored.row_group(place).total_byte_size for place in range(stored.num_row_groups)
    )
    fitting: int = stored.num_rows * _BATCH_BYTES // max(size, 1)
    return max(1, min(_BATCH_MESSAGES, fitting))


def after_archive(files: Sequence[ArchiveFile], piece: QueueSlice) -> QueueSlice | None:
    """Returns what of a slice lies behind the files; None if nothing does."""
    ends = [file.end for file in files if file.queue_id == piece.queue.queue_id]
    start = max([piece.start, *ends])
    return QueueSlice(queue=piece.queue, start=start, end=piece.end) if start < piece.end else None


def archived_in(files: Sequence[ArchiveFile], piece: QueueSlice) -> int:
    """Returns how many offsets of a slice lie in files."""
    own = (file for file in files if file.queue_id == piece.queue.queue_id)
    return sum(max(0, min(one.end, piece.end) - max(one.start, piece.start)) for one in own)


@contextmanager
def writing_part(folder: Path) -> Iterator[Path]:
    """Gives an empty place to write the next part in; `finish_part` makes it one.

    Raises:
        ProjectionError: another export is writing.
    """
    make_folder(folder)
    with open_new(folder / ".lock", "w") as lock:
        if not take_file_lock(lock.fileno()):
            raise ProjectionError(f"another export is writing into {folder}")
        place = folder / _WRITING
        # Of an export that was killed.
        shutil.rmtree(place, ignore_errors=True)
        make_folder(place)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def finish_part(place: Path, part: ExportedPart) -> Path:
    """Makes what was written a part that is read; durable on return. Returns where it is."""
    with open_new(place / _MANIFEST, "wb") as file:
        file.write(msgspec.json.encode(part))
    _flush_tree(place)
    final = part_folder(place.parent, part.number)
    place.rename(final)
    flush(place.parent)
    return final


def _flush_tree(folder: Path) -> None:
    """Brings a folder and everything below it to the disk."""
    for path, _, names in os.walk(folder, topdown=False):
        for name in names:
            flush(Path(path, name))
        flush(Path(path))


def flush(path: Path) -> None:
    """Brings a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def parquet_at(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Opens a file to write, with its folder; compressed."""
    make_folder(path.parent)
    with open_new(path, "wb") as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        yield writer


def manifest_of(part: Path) -> Path:
    """Returns where a part says what it holds."""
    return part / _MANIFEST


def part_folder(folder: Path, number: int) -> Path:
    """Returns where a part is."""
    return folder / _PART.format(number)


def _moments(
    batch: pa.RecordBatch, piece: QueueSlice
) -> Iterator[tuple[int, list[tuple[int, str, bytes]]]]:
    offset = batch["offset"]
    kind = pc.fill_null(pc.map_lookup(batch["headers"], "kind", "first"), "")
    wanted = pc.and_(
        pc.and_(pc.greater_equal(offset, piece.start), pc.less(offset, piece.end)),
        pc.not_equal(kind, "rejection"),
    )
    kept = batch.filter(wanted)
    stored = pc.divide(kept["stored_at"].cast(pa.int64()), 1_000).to_pylist()
    columns = (kept[name].to_pylist() for name in ("offset", "key", "body"))
    for moment, some in groupby(zip(stored, *columns, strict=True), key=itemgetter(0)):
        yield moment, [message[1:] for message in some]


def identity_of(parts: Sequence[ExportedPart]) -> str:
    """Returns the UUID of the topic that parts are of; empty: older versions have written all of them."""
    return next((each.identity for each in reversed(parts) if each.identity), "")


def known_epochs(parts: Sequence[ExportedPart]) -> dict[QueueRef, int]:
    """Returns for each queue the epoch of the newest part, to ask where messages have changed since."""
    last = parts[-1] if parts else None
    return {QueueRef(last.topic, n): epoch for n, epoch in last.epochs.items()} if last else {}


def ends_of(parts: Sequence[ExportedPart], held: Sequence[QueueRange]) -> dict[QueueRef, int]:
    """Returns where the next part begins, of every queue.

    Raises:
        ProjectionError: the broker does not hold what comes next, or lacks a queue.
    """
    return next_offsets(held, parts[-1].end if parts else {})
