"""
What consumers did with a message after it was stored: steps, one message of the trace topic each.

The message itself says when it was produced and stored. The key of a step is the id of the traced
message, so that the broker's key index finds it.

Used by `tracer`, which writes steps, and by `admin.lookup`, which reads them. Pure.
"""

from typing import Literal, NamedTuple
from zlib import crc32

import msgspec

from headrace_mq.client.retry_headers import DEAD_LETTER_PREFIX, RETRY_PREFIX, origin_of
from headrace_mq.message import Record
from headrace_mq.message_id import message_id

__all__ = [
    "TRACE_TOPIC",
    "Kind",
    "TraceStep",
    "Traced",
    "decode_step",
    "encode_step",
    "is_traced",
    "settled_kind",
    "traced",
]

TRACE_TOPIC = "%TRACE%"

Kind = Literal["delivered", "begun", "acknowledged", "failed", "retried", "dead letter"]

# A share is rounded to a ten-thousandth.
_PARTS = 10_000


class TraceStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to a message.

    Attributes:
        kind: "delivered" to the application, "begun" by a handler, "acknowledged", "failed" and
            handled again in place, "retried" later through the retry topic, or put among the dead
            letters.
        at_ms: when, in ms since 1970 UTC, by the consumer's clock.
        group: of the consumer.
        client_id: of the consumer.
        attempt: to handle the message, from 1; goes on counting where it is retried.
        detail: where it went, and what it failed with.
    """

    kind: Kind
    at_ms: int
    group: str
    client_id: str
    attempt: int = 1
    detail: str = ""


class Traced(NamedTuple):
    """A record's id in its own topic, and how many attempts failed before it came here."""

    message_id: str
    failed: int


def traced(record: Record) -> Traced:
    """Returns what a record is traced as; a retried one under the id that it had at first."""
    origin = origin_of(record)
    if origin is None:
        return Traced(str(message_id(record)), 0)
    return Traced(f"{origin.topic}:{origin.queue_id}:{origin.offset}", origin.attempt)


def is_traced(message_id: str, share: float) -> bool:
    """Whether a message is among the share that is traced: the same answer for every consumer."""
    return crc32(message_id.encode()) % _PARTS < share * _PARTS


def settled_kind(where: str) -> Kind:
    """What it means for a failed record to be settled in a place."""
    if where.startswith(DEAD_LETTER_PREFIX):
        return "dead letter"
    return "retried" if where.startswith(RETRY_PREFIX) else "acknowledged"


def encode_step(step: TraceStep) -> bytes:
    """The body of a message of the trace topic."""
    return msgspec.json.encode(step)


def decode_step(body: bytes) -> TraceStep | None:
    """Reads one; None for a body that is no step this version knows."""
    try:
        return msgspec.json.decode(body, type=TraceStep)
    except msgspec.DecodeError:
        return None
