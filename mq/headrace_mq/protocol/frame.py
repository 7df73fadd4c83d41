"""
Length-prefixed frames: bytes in, frames out, with a limit on their size.

     0        4      6    7    8            16
    ┌────────┬──────┬────┬────┬────────────┬───────────────┐
    │ length │ code │ver │flag│ correlation│ body …        │   little-endian
    │ u32    │ u16  │ u8 │ u8 │ u64        │               │
    └────────┴──────┴────┴────┴────────────┴───────────────┘
    length counts the bytes after itself: 12 + body.

A request's code is a `RequestCode`, an answer's a `ResponseCode`; flag bit 0 marks an answer, bit 1
a request that wants none.

Used by `_net`, by the broker's handlers, and by the blocking reader. Pure.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from headrace_mq.errors import FrameTooLarge, MalformedRequest

__all__ = [
    "FLAG_ANSWER",
    "FLAG_ONEWAY",
    "FRAME_HEADER_BYTES",
    "PROTOCOL_VERSION",
    "REPLICA_SOFTWARE",
    "Frame",
    "FrameReader",
    "encode_frame",
    "encode_frame_head",
]

PROTOCOL_VERSION = 1
# What a replica calls itself in its HELLO to the leader of its group.
REPLICA_SOFTWARE = "headrace replica"
FRAME_HEADER_BYTES = 16
FLAG_ANSWER = 1
FLAG_ONEWAY = 2

_HEADER = struct.Struct("<IHBBQ")
_LENGTH_BYTES = 4
_AFTER_LENGTH_MIN = FRAME_HEADER_BYTES - _LENGTH_BYTES

_new = tuple.__new__


class Frame(NamedTuple):
    """One whole frame; `body` is a writable view of the bytes that arrived."""

    code: int
    version: int
    flags: int
    correlation: int
    body: memoryview

    @property
    def is_answer(self) -> bool:
        """Whether this frame answers a request."""
        return bool(self.flags & FLAG_ANSWER)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flags & FLAG_ONEWAY)


def encode_frame(
    code: int, correlation: int, *parts: bytes | bytearray | memoryview, flags: int = 0
) -> bytes:
    """Joins a header and the parts of a body into one frame."""
    return b"".join((encode_frame_head(code, correlation, sum(map(len, parts)), flags), *parts))


def encode_frame_head(code: int, correlation: int, body_bytes: int, flags: int = 0) -> bytes:
    """Encodes the header of a frame whose body of `body_bytes` is written after it."""
    return _HEADER.pack(_AFTER_LENGTH_MIN + body_bytes, code, PROTOCOL_VERSION, flags, correlation)


class FrameReader:
    """Cuts a stream of bytes into frames.

    Args:
        frame_bytes_max: the largest length field accepted; may be raised after the handshake.

    Attributes:
        held: bytes of frames that are not whole, or were not taken yet; only to be read.
        cuts: a number that stays while the same frame is arriving; only to be read.
    """

    __slots__ = ("cuts", "frame_bytes_max", "held")

    def __init__(self, frame_bytes_max: int) -> None:
        self.held = bytearray()
        self.cuts = 0
        self.frame_bytes_max = frame_bytes_max

    def forget(self) -> None:
        """Gives up what has arrived of frames; the stream is unusable afterwards."""
        self.held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields every frame that is whole now.

        Raises:
            FrameTooLarge: the length field is over the limit; the stream is unusable afterwards.
            MalformedRequest: the length field is too small for a header.
        """
        if not self.held and len(data) >= FRAME_HEADER_BYTES:
            # Most reads are one whole frame.
            length, code, version, flags, correlation = _HEADER.unpack_from(data)
            if _LENGTH_BYTES + length == len(data) and length <= self.frame_bytes_max:
                self.cuts += 1
                body = memoryview(bytearray(data))[FRAME_HEADER_BYTES:]
                yield _new(Frame, (code, version, flags, correlation, body))
                return
        # What was held has no views on it, so it may grow in place; a buffer whose frames were
        # handed out is never touched again.
        buffer = self.held
        buffer += data
        view = memoryview(buffer)
        at, end = 0, len(buffer)
        while end - at >= FRAME_HEADER_BYTES:
            length, code, version, flags, correlation = _HEADER.unpack_from(buffer, at)
            if length > self.frame_bytes_max:
                raise FrameTooLarge(
                    f"a frame of {length} bytes is over this connection's limit of"
                    f" {self.frame_bytes_max}; send smaller batches"
                )
            if length < _AFTER_LENGTH_MIN:
                raise MalformedRequest(f"a frame length of {length} is too small for its header")
            whole = _LENGTH_BYTES + length
            if end - at < whole:
                break
            body = view[at + FRAME_HEADER_BYTES : at + whole]
            # A named tuple built as a tuple: half the time of calling it, for every frame.
            yield _new(Frame, (code, version, flags, correlation, body))
            at += whole
        if at == 0:
            view.release()
        else:
            self.held = buffer[at:]
            self.cuts += 1
