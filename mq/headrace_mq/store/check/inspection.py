"""
Checks a store's directory: every checksum of every file, without changing a byte.

Used by the command line and by `repair`; reads the files of a store while no broker uses it. It uses
`recovery.judge` like a start, so both call the same bytes damage. It knows the broker's own files only by the kinds
that its caller passes in.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from headrace_mq._runtime.files import Files, SystemFiles
from headrace_mq.errors import DataCorrupt, FormatTooNew, MessageQueueError, UndecodableBatch
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, decode_placed
from headrace_mq.store.check.index_inspection import index_flaw, indexed_end, keys_flaw
from headrace_mq.store.check.report import CheckedFile, Finding, FoundQueue, MetadataKind, Report
from headrace_mq.store.index.segment_index import INDEX_SUFFIX
from headrace_mq.store.keys.key_file import KEYS_SUFFIX
from headrace_mq.store.log.clean_end import CHECKPOINT_NAME, COPY_NAME, CleanEnd
from headrace_mq.store.log.recovery import Verdict, judge
from headrace_mq.store.message_store import RETENTIONS
from headrace_mq.store.replication.epochs import EPOCHS_NAME
from headrace_mq.store.segment.checkpoint import read_checkpoint
from headrace_mq.store.segment.log_walk import Gap, LogWalk
from headrace_mq.store.segment.segment import SEGMENT_SUFFIX, UNFINISHED_SUFFIX, Segment, WriteMark

__all__ = [
    "CHECKPOINT",
    "INDEX_SUFFIXES",
    "CheckedFile",
    "Finding",
    "FoundQueue",
    "MetadataKind",
    "ReadOnlyFiles",
    "Report",
    "check",
    "held",
    "inspect",
]

CHECKPOINT = CHECKPOINT_NAME
# Files next to a segment that can be rebuilt from it.
INDEX_SUFFIXES = (INDEX_SUFFIX, KEYS_SUFFIX)
_LOCK = "lock"
_IS_OURS = re.compile(r"\d+\.(log|index|keys)")
_SET_ASIDE = re.compile(r"\.damaged(-\d+)?$")


class ReadOnlyFiles(SystemFiles):
    """The machine's files, opened only for reading."""

    def open(self, path: Path, *, create: bool = False) -> int:  # noqa: ARG002 - the port's
        """Opens a file for reading; a missing file is an error even with `create`."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def held(files: Files, directory: Path) -> Iterator[None]:
    """Locks a directory, so that no broker can start in it.

    Raises:
        MessageQueueError: there is no store, a broker uses it, or a file cannot be opened.
    """
    try:
        names = files.names(directory)
        if not {_LOCK, CHECKPOINT, *RETENTIONS} & set(names):
            raise MessageQueueError(
                f"there is no store in {directory}; name the directory that"
                " `headrace broker --data` was given"
            )
        # A copy of a store may lack the lock file; then no broker uses it.
        fd = files.open(directory / _LOCK) if _LOCK in names else None
        try:
            if fd is not None and not files.lock(fd):
                raise MessageQueueError(
                    f"a broker runs in {directory}; stop it, or check a copy of the directory"
                )
            yield
        finally:
            if fd is not None:
                files.close(fd)
    except OSError as error:
        raise MessageQueueError(
            f"{directory} cannot be used: {error}; check the disk and the rights on it"
        ) from error


def check(
    directory: Path, *, metadata: Mapping[str, MetadataKind], files: Files | None = None
) -> Report:
    """Reads every file of a store and verifies every checksum. Blocks until done.

    Args:
        directory: of the store.
        metadata: the broker's files by their path in it.
        files: the file system.

    Raises:
        MessageQueueError: it cannot be checked; the message says why.
    """
    files = files or ReadOnlyFiles()
    with held(files, directory):
        return inspect(files, directory, metadata)


def inspect(files: Files, directory: Path, metadata: Mapping[str, MetadataKind]) -> Report:
    """Like `check`, for a caller that holds the directory. Raises OSError."""
    return _Inspection(files, directory, metadata).run()


class _Inspection:
    """One check; collects its findings."""

    def __init__(self, files: Files, directory: Path, metadata: Mapping[str, MetadataKind]) -> None:
        self._files = files
        self._directory = directory
        self._metadata = metadata
        self._queues: dict[QueueRef, FoundQueue] = {}
        self._ends: dict[str, int] = {}
        self._checked: list[CheckedFile] = []
        self._findings: list[Finding] = []

    def run(self) -> Report:
        """Checks every file of the directory."""
        names = self._files.names(self._directory)
        folders = {file.partition("/")[0] for file in self._metadata}
        for name in names:
            if name not in {_LOCK, CHECKPOINT, COPY_NAME, EPOCHS_NAME, *RETENTIONS, *folders}:
                self._pass_over(name)
        known = self._check_checkpoint()
        for log in RETENTIONS:
            self._check_log(log, known)
        for folder in sorted(folders & set(names)):
            self._check_metadata(folder)
        return Report(
            directory=str(self._directory),
            files=self._checked,
            findings=self._findings,
            queues=[self._queues[queue] for queue in sorted(self._queues)],
            ends=self._ends,
        )

    def _check_checkpoint(self) -> CleanEnd | None:
        found = [
            self._check_small(
                name,
                lambda payload: msgspec.msgpack.decode(payload, type=CleanEnd),
                kind="checkpoint",
            )
            for name in (CHECKPOINT, COPY_NAME)
        ]
        return next((one for one in found if isinstance(one, CleanEnd)), None)

    def _check_metadata(self, folder: str) -> None:
        for name in self._files.names(self._directory / folder):
            file = f"{folder}/{name}"
            known = self._metadata.get(file)
            if known is None:
                self._pass_over(file)
                continue
            decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(known.kind)
            self._check_small(file, decoder.decode, kind="metadata")

    def _check_small(
        self,
        file: str,
        decode: Callable[[bytes], object],
        *,
        kind: Literal["checkpoint", "metadata"],
    ) -> object | None:
        try:
            payload = read_checkpoint(self._files, self._directory / file)
            if payload is None:
                return None
            value = decode(payload)
        except FormatTooNew as error:
            self._find(file, "newer", str(error))
        except (DataCorrupt, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._find(file, "damaged", str(error), remedy="set aside")
        else:
            self._checked.append(CheckedFile(file=file, kind=kind, bytes=len(payload)))
            return value
        return None

    def _check_log(self, log: str, known: CleanEnd | None) -> None:
        folder = self._directory / log
        names = self._files.names(folder) if folder.exists() else []
        synced = 0 if known is None else known.logs.get(log, 0)
        start = 0 if known is None else known.starts.get(log, 0)
        segments: list[Segment] = []
        try:
            for name in self._held(log, names, start):
                if segments and self._is_covered(log, name, segments[-1]):
                    continue
                segment = self._open(log, name)
                if segment is not None:
                    segments.append(segment)
            if known is not None and segments and segments[0].base > start:
                self._find(
                    f"{log}/{segments[0].path.name}", "missing",
                    "the segment before it is missing; put it back",
                    position=start, length=segments[0].base - start,
                )  # fmt: skip
            for segment, following in pairwise(segments):
                self._check_sealed(log, segment, following.base)
                self._check_derived(log, segment, following.base)
            # If whole segments are missing, take the end of the last one that is left.
            reached = synced if segments and synced <= segments[-1].limit else 0
            end = self._end_of(log, segments[-1], reached) if segments else 0
            if segments:
                self._check_derived(log, segments[-1], end)
        finally:
            for segment in segments:
                segment.close()
        self._ends[log] = end
        limit = segments[-1].limit if segments else 0
        if synced > limit:
            self._find(
                CHECKPOINT, "missing",
                f"the log {log!r} reached position {synced} at its last clean close, but its files"
                f" end at {limit}: a segment file is missing; put it back",
                remedy="shorten", position=limit, length=synced - limit,
            )  # fmt: skip

    def _held(self, log: str, names: list[str], start: int) -> list[str]:
        """Leaves out the segments whose deletion has begun; the next start completes it."""
        bases = {name: int(name.partition(".")[0]) for name in names if _IS_OURS.fullmatch(name)}
        logs = [base for name, base in bases.items() if name.endswith(SEGMENT_SUFFIX)]
        first = max((base for base in logs if base <= start), default=0)
        for name in names:
            if bases.get(name, first) < first:
                reason = "it was being deleted; the next start ends that"
                self._findings.append(
                    Finding(file=f"{log}/{name}", kind="unfinished", reason=reason)
                )
        return [name for name in names if bases.get(name, first) >= first]

    def _is_covered(self, log: str, name: str, before: Segment) -> bool:
        """Whether the compacted segment before it holds the records of a file."""
        is_ours = _IS_OURS.fullmatch(name) and before.compacted is not None
        if not is_ours or not before.base < int(name.partition(".")[0]) < before.limit:
            return False
        reason = "a compaction put it into the segment before; the next start removes it"
        self._findings.append(Finding(file=f"{log}/{name}", kind="unfinished", reason=reason))
        return True

    def _end_of(self, log: str, segment: Segment, synced: int) -> int:
        """Checks the last segment; returns where the log ends."""
        if segment.compacted is None:
            return self._check_last(log, segment, synced)
        self._check_sealed(log, segment, segment.limit)
        return segment.limit

    def _open(self, log: str, name: str) -> Segment | None:
        file, path = f"{log}/{name}", self._directory / log / name
        if not _IS_OURS.fullmatch(name):
            self._pass_over(file)
            return None
        if name.endswith(INDEX_SUFFIXES):
            size = path.stat().st_size
            self._checked.append(CheckedFile(file=file, kind="index", bytes=size))
            return None
        try:
            return Segment.open(self._files, path, log=log, file_bytes=path.stat().st_size)
        except FormatTooNew as error:
            self._find(file, "newer", str(error))
        except DataCorrupt as error:
            self._find(file, "damaged", str(error), remedy="set aside")
        return None

    def _check_sealed(self, log: str, segment: Segment, following: int) -> None:
        file = f"{log}/{segment.path.name}"
        self._note_header(file, segment)
        if following > segment.limit:
            self._find(
                file, "missing", "the segment behind it is missing; put it back",
                position=segment.limit, length=following - segment.limit,
            )  # fmt: skip
        walk = LogWalk(segment, segment.data_end(min(following, segment.limit)))
        self._count(log, segment, walk, stop=None)

    def _check_derived(self, log: str, segment: Segment, end: int) -> None:
        for suffix, check in zip(INDEX_SUFFIXES, (index_flaw, keys_flaw), strict=True):
            flaw = check(self._files, segment, log, end)
            file = f"{log}/{segment.path.with_suffix(suffix).name}"
            if flaw is None:
                continue
            if flaw.believed:
                reason = f"{flaw.reason}; a start without it makes it again"
                self._find(file, "damaged", reason, remedy="set aside")
            else:
                self._find(file, "stale", f"{flaw.reason}; a broker makes it again by itself")

    def _check_last(self, log: str, segment: Segment, synced: int) -> int:
        file = f"{log}/{segment.path.name}"
        walk = LogWalk(segment, segment.held_end)
        # A start trusts the index, and judges only the bytes after its end.
        began = synced = max(synced, indexed_end(self._files, segment, log))
        try:
            torn, synced = self._torn(walk, synced)
        except (FormatTooNew, OSError):
            # `_count` reports it again, with its position.
            torn = None
        end = self._count(log, segment, walk, stop=torn, began=began, synced=synced)
        if torn is not None and walk.has_bytes(torn.start):
            self._find(
                file, "torn", "a write was interrupted; the next start cuts it off",
                position=torn.start, length=torn.end - torn.start,
            )  # fmt: skip
        unusable = segment.header_damage is not None and end == segment.base
        self._note_header(file, segment, remedy="set aside" if unusable else "")
        return end

    def _torn(self, walk: LogWalk, synced: int) -> tuple[Gap | None, int]:
        """Returns the torn write at the log's end, if any, and the position below which all was durable."""
        gaps = []
        for entry in walk.entries(synced=synced):
            if isinstance(entry, Gap):
                gaps.append(entry)
            elif isinstance(entry, WriteMark):
                synced = max(synced, entry.synced)
        for gap in gaps:
            following = gap.end if gap.whole_follows else None
            unwritten = gap.whole_follows and walk.has_unwritten_sector(gap.start, gap.end)
            verdict = judge(gap.start, following, synced=synced, unwritten=unwritten)
            if verdict is Verdict.TORN:
                return gap, synced
        return None, synced

    def _count(
        self,
        log: str,
        segment: Segment,
        walk: LogWalk,
        *,
        stop: Gap | None,
        began: int | None = None,
        synced: int = 0,
    ) -> int:
        """Counts every batch up to `stop`; returns the log position after the last entry."""
        file = f"{log}/{segment.path.name}"
        end, batches, records = segment.base, 0, 0
        try:
            for entry in walk.entries(synced=began):
                if entry == stop:
                    break
                if isinstance(entry, Gap):
                    self._note_gap(file, entry, synced)
                    end = entry.end if entry.whole_follows or not synced else synced
                elif isinstance(entry, BatchHeader):
                    end = entry.position + entry.length
                    batches, records = batches + 1, records + entry.count
                    self._enter(log, file, entry)
                    self._decode(file, walk.batch(entry), entry)
        except FormatTooNew as error:
            self._find(file, "newer", str(error), position=end)
        except OSError as error:
            self._find(file, "damaged", f"it cannot be read: {error}", position=end)
        size = segment.path.stat().st_size
        self._checked.append(
            CheckedFile(file=file, kind="segment", bytes=size, batches=batches, records=records)
        )
        return end

    def _enter(self, log: str, file: str, header: BatchHeader) -> None:
        known, next_offset = self._queues.get(header.queue), header.next_offset
        if known is None:
            self._queues[header.queue] = FoundQueue(
                topic=header.queue.topic, queue_id=header.queue.queue_id, log=log,
                first=header.base_offset, next=next_offset, records=header.count,
            )  # fmt: skip
            return
        reason = None
        if known.log != log:
            reason = f"its queue stands in the log {known.log!r}"
        elif header.base_offset < known.next:
            reason = f"its offsets are below {known.next}, the end of its queue"
        if reason is not None:
            self._find_batch(file, header, reason, header.length)
            return
        self._queues[header.queue] = msgspec.structs.replace(
            known, next=next_offset, records=known.records + header.count
        )

    def _decode(self, file: str, batch: bytes, header: BatchHeader) -> None:
        try:
            decode_placed(batch, header)
        except UndecodableBatch as error:
            self._find_batch(file, header, str(error), header.length, kind="undecodable")

    def _note_gap(self, file: str, gap: Gap, synced: int) -> None:
        end = gap.end if gap.whole_follows or not synced else synced
        if gap.head is not None:
            self._find_batch(file, gap.head, "a batch fails its checksum", end - gap.start)
            return
        self._find(
            file, "damaged", "bytes that are no entry",
            position=gap.start, length=end - gap.start,
        )  # fmt: skip

    def _note_header(
        self, file: str, segment: Segment, *, remedy: Literal["", "set aside"] = ""
    ) -> None:
        if segment.header_damage is not None:
            self._find(file, "damaged", segment.header_damage, remedy=remedy)

    def _find_batch(
        self,
        file: str,
        header: BatchHeader,
        reason: str,
        length: int,
        *,
        kind: Literal["damaged", "undecodable"] = "damaged",
    ) -> None:
        self._findings.append(
            Finding(
                file=file, kind=kind, reason=reason, position=header.position, length=length,
                queue=f"{header.queue.topic}/{header.queue.queue_id}",
                base_offset=header.base_offset, records=header.count,
            )
        )  # fmt: skip

    def _find(
        self,
        file: str,
        kind: Literal["damaged", "missing", "newer", "torn", "stale"],
        reason: str,
        *,
        remedy: Literal["", "set aside", "shorten"] = "",
        position: int = -1,
        length: int = 0,
    ) -> None:
        self._findings.append(
            Finding(
                file=file, kind=kind, reason=reason, remedy=remedy,
                position=position, length=length,
            )
        )  # fmt: skip

    def _pass_over(self, file: str) -> None:
        kind: Literal["set aside", "unfinished", "unknown"]
        if _SET_ASIDE.search(file):
            kind, reason = "set aside", "an earlier repair moved it away"
        elif file.endswith((".new", UNFINISHED_SUFFIX + INDEX_SUFFIX)):
            kind, reason = "unfinished", "its making was interrupted; it never counted"
        else:
            kind, reason = "unknown", "no file of a store; it was not read"
        self._findings.append(Finding(file=file, kind=kind, reason=reason))
