"""
A worker process that filters batches in segment files.

    python -m headrace_mq.broker.fetch.filter_workers.process

It takes jobs from standard input, one after the other, and ends when standard input closes: so it does not
outlive its broker, not even a killed one. Used by `workers` through pipes; reads the files. It must not write
to them.
"""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import BinaryIO

from headrace_mq.broker.fetch.filter_workers.jobs import (
    LENGTH,
    READY,
    Job,
    JobResult,
    decode_job,
    encoded,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header, sound_batch
from headrace_mq.protocol.filter.batch_filter import BatchFilter, Selection
from headrace_mq.store.index.page import IndexEntry

__all__ = ["main", "run_job", "serve"]

# Bytes read at a time: they stay in the CPU's cache until they are filtered.
READ_BYTES = 256 << 10
# Reading over this many bytes of other queues is quicker than another system call.
_BRIDGE_BYTES = 4_096
# A lower priority than the broker and the clients on this machine, which wait for answers.
_NICENESS = 5
# A job's objects are freed when it ends, and they form no cycles: almost nothing is left to collect.
_GC_THRESHOLDS = (50_000, 20, 100)
# Compiled conditions to keep; a process serves few readers at a time.
_BATCH_FILTERS_MAX = 64


class _Buffer:
    """A reusable buffer for reads."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray(READ_BYTES))

    def read(self, file: int, at: int, length: int) -> memoryview:
        """Returns `length` bytes of a file, or as many as there are; they stay until the next call."""
        if length > len(self._memory):
            self._memory = memoryview(bytearray(length))
        held = os.preadv(file, [self._memory[:length]], at)
        return self._memory[:held]


def run_job(job: Job, batch_filter: BatchFilter) -> JobResult:
    """Filters the batches of a job; stops before a damaged batch, or when it has found enough.

    Raises:
        OSError: the file cannot be read.
    """
    gathering, wholes, looked = Selection(QueueRef(job.topic, job.queue_id)), list[int](), 0
    go_on = job.entries[0].base
    # Whole batches are not copied: the broker sends them from the file.
    file = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for entry, batch in _batches(file, job):
            if batch is None:
                break
            looked += entry.length
            go_on = read_header(batch).next_offset
            part = batch_filter.part_of(batch, picks=job.picks)
            if part is not None:
                if part.picks is None:
                    wholes.append(entry.base)
                gathering.add(part)
                if gathering.size >= job.enough:
                    break
    finally:
        os.close(file)
    gathering.close()
    return JobResult(go_on, looked, gathering.count, gathering.size, gathering.picked, wholes)


def _batches(file: int, job: Job) -> Iterator[tuple[IndexEntry, memoryview | None]]:
    """Yields each batch, valid until the next one, or None for one that is not sound."""
    buffer, topic = _Buffer(), job.topic.encode()
    for run in _runs(job.entries):
        start = run[0].position
        length = run[-1].position + run[-1].length - start
        held = buffer.read(file, start + job.shift, length)
        for entry in run:
            at = entry.position - start
            batch = held[at : at + entry.length]
            expected = (entry.length, entry.base, entry.position, job.queue_id, topic)
            yield entry, batch if sound_batch(batch) == expected else None


def _runs(entries: Sequence[IndexEntry]) -> Iterator[Sequence[IndexEntry]]:
    """Cuts entries into what is read at a time."""
    first, start, end = 0, entries[0].position, entries[0].position
    for number, entry in enumerate(entries):
        is_near = entry.position - end <= _BRIDGE_BYTES
        end = entry.position + entry.length
        if not (is_near and end - start <= READ_BYTES) and number > first:
            yield entries[first:number]
            first, start = number, entry.position
    yield entries[first:]


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Does what comes in until there is no more."""
    batch_filters = lru_cache(_BATCH_FILTERS_MAX)(BatchFilter)
    answers.write(READY)
    answers.flush()
    while len(head := jobs.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        body = jobs.read(length)
        if len(body) < length:
            return
        job = decode_job(body)
        try:
            result = run_job(job, batch_filters(job.condition))
        except OSError:
            # Deleted meanwhile, or a bad disk: the broker sees for itself, and says what is wrong.
            result = JobResult(job.entries[0].base)
        answers.write(encoded(result))
        answers.flush()


def main() -> None:
    """Serves the pipes that this process was started with."""
    with suppress(OSError):
        # Where that is forbidden it works all the same.
        os.nice(_NICENESS)
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.freeze()
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        # The broker is gone; without this the interpreter would complain when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
