"""
Makes a damaged store usable again: moves unusable files away, and rebuilds files that can be rebuilt.

It never deletes anything: a file that it moves away keeps its bytes under `NAME.damaged`. A segment
with damaged batches stays in its place, because a broker skips these batches by itself.

Used by the command line. Uses the report of `inspection`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from headrace_mq._runtime.files import Files, SystemFiles
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.protocol.batch import BatchHeader
from headrace_mq.store.check.inspection import (
    CHECKPOINT,
    INDEX_SUFFIXES,
    Finding,
    MetadataKind,
    ReadOnlyFiles,
    Report,
    held,
    inspect,
)
from headrace_mq.store.log.clean_end import COPY_NAME
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint
from headrace_mq.store.segment.log_walk import LogWalk
from headrace_mq.store.segment.segment import SEGMENT_SUFFIX, Segment

__all__ = ["Exported", "Repair", "RepairStep", "export", "repair"]


class RepairStep(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a directory.

    Attributes:
        file: the file to move away, or to write.
        becomes: its new name; empty if the step writes the file.
        reason: why, and the consequence for the next start.
    """

    file: str
    becomes: str
    reason: str


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, the steps to repair them, and whether the steps were done."""

    report: Report
    steps: list[RepairStep]
    applied: bool


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    segments: list[str]
    batches: int
    records: int


def repair(
    directory: Path,
    *,
    metadata: Mapping[str, MetadataKind],
    apply: bool,
    files: Files | None = None,
) -> Repair:
    """Plans the steps that make a store usable again. With `apply` it also does them, durably.

    After a crash some steps are done; call it again to do the rest.

    Raises:
        MessageQueueError: a broker uses the directory, or a file cannot be opened.
    """
    files = files or (SystemFiles() if apply else ReadOnlyFiles())
    with held(files, directory):
        report = inspect(files, directory, metadata)
        plan = _Plan(files, directory, metadata, report)
        steps = plan.steps()
        if apply:
            for step in steps:
                plan.do(step)
    return Repair(report=report, steps=steps, applied=apply)


def export(directory: Path, target: BinaryIO, *, files: Files | None = None) -> Exported:
    """Copies every sound batch of every damaged segment to `target`, in the format of the wire.

    Raises:
        MessageQueueError: a broker uses the directory, or a file cannot be opened.
    """
    files = files or ReadOnlyFiles()
    with held(files, directory):
        report = inspect(files, directory, {})
        damaged = sorted(
            {
                one.file
                for one in report.findings
                if one.is_damage and one.file.endswith(SEGMENT_SUFFIX)
            }
        )
        batches = records = 0
        for file in damaged:
            for header, batch in _sound(files, directory / file):
                target.write(batch)
                batches, records = batches + 1, records + header.count
    return Exported(segments=damaged, batches=batches, records=records)


def _sound(files: Files, path: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    try:
        segment = Segment.open(files, path, log=path.parent.name, file_bytes=path.stat().st_size)
    except (DataCorrupt, FormatTooNew):
        # A segment of another log or version: its batches would get wrong names.
        return
    try:
        walk = LogWalk(segment, segment.held_end)
        for entry in walk.entries():
            if isinstance(entry, BatchHeader):
                yield entry, walk.batch(entry)
    finally:
        segment.close()


class _Plan:
    """The steps that a report requires, and the code that does each."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        metadata: Mapping[str, MetadataKind],
        report: Report,
    ) -> None:
        self._files = files
        self._directory = directory
        self._metadata = metadata
        self._report = report
        self._contents: dict[str, bytes] = {}

    def steps(self) -> list[RepairStep]:
        """Returns the steps in order: a damaged file is moved away before a new one is written."""
        steps: dict[str, RepairStep] = {}
        for finding in self._report.findings:
            if finding.remedy and finding.file not in steps:
                steps[finding.file] = self._move(finding)
            for file in self._indexes(finding):
                steps.setdefault(
                    file, self._aside(file, "its segment is damaged; a start makes it again")
                )
        return [*steps.values(), *self._writes(steps)]

    def do(self, step: RepairStep) -> None:
        """Does one step, durably."""
        path = self._directory / step.file
        if step.becomes:
            self._files.rename(path, self._directory / step.becomes)
            self._files.sync_directory(path.parent)
        else:
            write_checkpoint(self._files, path, self._contents[step.file])

    def _move(self, finding: Finding) -> RepairStep:
        known = self._metadata.get(finding.file)
        if known is not None:
            return self._aside(finding.file, known.loss)
        if finding.file in {CHECKPOINT, COPY_NAME}:
            reason = "a start then takes the other copy, or else the logs as they are"
            return self._aside(finding.file, reason)
        return self._aside(finding.file, "a broker does not start with it; its messages are lost")

    def _aside(self, file: str, reason: str) -> RepairStep:
        becomes, number = f"{file}.damaged", 2
        while (self._directory / becomes).exists():
            becomes, number = f"{file}.damaged-{number}", number + 1
        return RepairStep(file=file, becomes=becomes, reason=reason)

    def _indexes(self, finding: Finding) -> list[str]:
        if not finding.is_damage or not finding.file.endswith(SEGMENT_SUFFIX):
            return []
        stem = finding.file.removesuffix(SEGMENT_SUFFIX)
        derived = [stem + suffix for suffix in INDEX_SUFFIXES]
        return [file for file in derived if (self._directory / file).exists()]

    def _writes(self, moved: Mapping[str, RepairStep]) -> list[RepairStep]:
        steps = []
        for file, known in self._metadata.items():
            if file in moved and known.rebuilt is not None:
                self._contents[file] = known.rebuilt(self._report.queues)
                steps.append(RepairStep(file=file, becomes="", reason="made again from the log"))
        lost_segments = [file for file in moved if file.endswith(SEGMENT_SUFFIX)]
        shorten = any(one.remedy == "shorten" for one in self._report.findings)
        content = self._shortened() if shorten or lost_segments else None
        if content is not None:
            reason = "the logs' ends as they are now; no offset is given twice"
            for file in (CHECKPOINT, COPY_NAME):
                self._contents[file] = content
                steps.append(RepairStep(file=file, becomes="", reason=reason))
        return steps

    def _shortened(self) -> bytes | None:
        """Returns the checkpoint with each log's end cut to the end of its files; offsets stay."""
        payload = self._checkpoint()
        if payload is None:
            return None
        logs, *others = msgspec.msgpack.decode(payload)
        ends = {log: min(end, self._report.ends.get(log, end)) for log, end in logs.items()}
        return msgspec.msgpack.encode([ends, *others])

    def _checkpoint(self) -> bytes | None:
        damaged = {one.file for one in self._report.findings if one.kind in {"damaged", "newer"}}
        for file in (CHECKPOINT, COPY_NAME):
            if file not in damaged:
                payload = read_checkpoint(self._files, self._directory / file)
                if payload is not None:
                    return payload
        return None
