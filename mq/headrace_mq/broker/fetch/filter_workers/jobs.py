"""
The job of a filter worker and its result: the length as u32, then that many bytes of msgpack.

The first thing a process says is a frame without anything in it: it takes jobs from now on.

Used by `workers`, which ask, and by `process`, which answers. Pure.
"""

import struct
from collections.abc import Sequence

import msgspec

from headrace_mq.protocol.bodies import Picked
from headrace_mq.store.index.page import IndexEntry

__all__ = [
    "LENGTH", "READY", "Job", "JobResult", "decode_job", "decode_result", "encoded",
]  # fmt: skip

LENGTH = struct.Struct("<I")
READY = LENGTH.pack(0)


class Job(msgspec.Struct, frozen=True, array_like=True):
    """Batches to look through.

    Args:
        condition: what is wanted, as `Filter` takes it.
        picks: whether messages may be picked out of their batches.
        topic, queue_id: the queue that they are in.
        path: of the file that they are in.
        shift: what is added to a log position to get a byte of the file.
        entries: the batches, in offset order; at least one.
        enough: bytes of what is wanted that end the job.
    """

    condition: str
    picks: bool
    topic: str
    queue_id: int
    path: str
    shift: int
    entries: Sequence[IndexEntry]
    enough: int


class JobResult(msgspec.Struct, frozen=True, array_like=True):
    """What is wanted of a job's batches.

    Args:
        next: the offset to go on at; at or below the one asked for, nothing could be done.
        looked_bytes: how much was looked through.
        count: messages in what is wanted.
        size: the bytes that these take, at most.
        picked: messages that were picked out.
        wholes: the first offsets of batches that are wanted whole.
    """

    next: int
    looked_bytes: int = 0
    count: int = 0
    size: int = 0
    picked: list[Picked] = []
    wholes: list[int] = []


_encode = msgspec.msgpack.Encoder().encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_result = msgspec.msgpack.Decoder(JobResult).decode


def encoded(what: Job | JobResult) -> bytes:
    """A job or what came of it, ready for the pipe."""
    body = _encode(what)
    return LENGTH.pack(len(body)) + body
