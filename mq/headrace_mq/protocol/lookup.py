"""
The bodies of FIND_MESSAGES: messages by key, answer by answer.

An answer is `u32 length of the struct, struct, batches`, like that of FETCH. Sits between: frames
and the callers of `encode` and `decode`. Pure.
"""

import struct

from headrace_mq.errors import MalformedRequest
from headrace_mq.protocol.bodies import Body, decode, encode

__all__ = ["FindAnswer", "FindMessages", "decode_find_answer", "encode_find_answer"]

_LENGTH = struct.Struct("<I")


class FindMessages(Body, frozen=True):
    """Searches for messages of a key that were appended from `from_ms` on and before `to_ms`.

    `log` and `position` are those of the last answer, to go on; an empty `log` begins.
    """

    topic: str
    key: str
    from_ms: int
    to_ms: int
    messages_max: int
    bytes_max: int
    log: str = ""
    position: int = 0


class FindAnswer(Body, frozen=True):
    """What was found so far, and where to go on; an empty `log`: everything was searched."""

    messages: int
    log: str
    position: int


def encode_find_answer(answer: FindAnswer) -> bytes:
    """Encodes the part of the answer that stands before the batches."""
    body = encode(answer)
    return _LENGTH.pack(len(body)) + body


def decode_find_answer(data: memoryview) -> tuple[FindAnswer, memoryview]:
    """Splits an answer into its struct and the bytes of its batches.

    Raises:
        MalformedRequest: it is none.
    """
    if len(data) < _LENGTH.size:
        raise MalformedRequest("a FIND_MESSAGES answer is shorter than its length field")
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return decode(FindAnswer, data[_LENGTH.size : end]), data[end:]
