"""
A process that looks through batches of segments' files for what is wanted of them.

    python -m headrace_mq.broker.fetch.filter_workers.process

Takes jobs from standard input, one after the other, and ends with it: so none outlives its broker, however
that ends. Used by `sifters` through pipes; reads the files. It must never write to one.
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
    Sifted,
    decode_job,
    encoded,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header, sound_batch
from headrace_mq.protocol.filter.sieve import Selection, Sieve
from headrace_mq.store.index.page import IndexEntry

__all__ = ["main", "serve", "sift"]

# Read at a time, so that it stays in the processor's cache until it is looked at.
READ_BYTES = 256 << 10
# To read on over so many bytes of other queues is quicker than to ask the system again.
_BRIDGE_BYTES = 4_096
# Behind those who wait for an answer: the broker and the clients of this machine.
_NICENESS = 5
# What a job makes is gone when it is done, and no cycles are among it: next to nothing is left to collect.
_GC_THRESHOLDS = (50_000, 20, 100)
# Conditions kept compiled; a process serves few readers at a time.
_SIEVES_MAX = 64


class _Buffer:
    """Memory that is read into again and again."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray(READ_BYTES))

    def read(self, file: int, at: int, length: int) -> memoryview:
        """Returns `length` bytes of a file, or as many as there are; they stay until the next call."""
        if length > len(self._memory):
            self._memory = memoryview(bytearray(length))
        held = os.preadv(file, [self._memory[:length]], at)
        return self._memory[:held]


def sift(job: Job, sieve: Sieve) -> Sifted:
    """Looks through the batches of a job, up to one that is not sound or when it has found enough.

    Raises:
        OSError: the file cannot be read.
    """
    gathering, wholes, looked = Selection(QueueRef(job.topic, job.queue_id)), list[int](), 0
    go_on = job.entries[0].base
    # What is whole is not copied: its reader will be given it from the file.
    file = os.open(job.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for entry, batch in _batches(file, job):
            if batch is None:
                break
            looked += entry.length
            go_on = read_header(batch).next_offset
            part = sieve.part_of(batch, picks=job.picks)
            if part is not None:
                if part.picks is None:
                    wholes.append(entry.base)
                gathering.add(part)
                if gathering.size >= job.enough:
                    break
    finally:
        os.close(file)
    gathering.close()
    return Sifted(go_on, looked, gathering.count, gathering.size, gathering.picked, wholes)


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
    sieves = lru_cache(_SIEVES_MAX)(Sieve)
    answers.write(READY)
    answers.flush()
    while len(head := jobs.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        body = jobs.read(length)
        if len(body) < length:
            return
        job = decode_job(body)
        try:
            sifted = sift(job, sieves(job.condition))
        except OSError:
            # Deleted meanwhile, or a bad disk: the broker sees for itself, and says what is wrong.
            sifted = Sifted(job.entries[0].base)
        answers.write(encoded(sifted))
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
