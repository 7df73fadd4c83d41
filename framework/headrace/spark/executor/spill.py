"""
Aggregates on this machine's disk, while a task has more of them than it may hold in memory.

    their rows and versions so far, then their messages ─▶ parts by aggregate ─▶ each part on its own

A queue's messages of one aggregate stay in order, and all of them are in one part. Used by `slices`,
which folds each part as if it were a queue; writes into the folder for temporary files.
It must not know an event.
"""

import os
import tempfile
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from headrace.domain.stream_body import aggregate_of
from headrace.rebuild.event_topic import Portion

__all__ = ["State", "StateSpill"]

# Parts of one spill: each has so much less to hold.
_PART_BITS: Final = 5
_PARTS: Final = 1 << _PART_BITS
# Spreads the bits of a checksum (Knuth's multiplicative hashing).
_MIX: Final = 0x9E3779B1
# Bytes of one part that are written together: of all parts, 8 MiB.
_CHUNK_BYTES: Final = 256 << 10


class State(NamedTuple):
    """What folding has made of an aggregate so far.

    Attributes:
        aggregate_id: its id.
        version: its last version.
        touched: whether an event has touched its row.
        row: the row, encoded; None: there is none.
    """

    aggregate_id: str
    version: int
    touched: bool
    row: bytes | None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_states: Final = msgspec.msgpack.Decoder(list[State]).decode
_decode_messages: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes]]).decode


class StateSpill:
    """States, and messages that come after them, in a file without a name.

    Args:
        level: how many spills what comes in has been through; each divides in its own way.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        # One without a name leaves nothing of a task that is killed.
        self._file: Any = tempfile.TemporaryFile()  # noqa: SIM115 - see `close`
        self._states = [_Column(self._file) for _ in range(_PARTS)]
        self._messages = [_Column(self._file) for _ in range(_PARTS)]

    def add_state(self, state: State) -> None:
        """Takes the state of an aggregate, of each one before its messages."""
        size = len(state.aggregate_id) + len(state.row or b"")
        self._states[self._part(state.aggregate_id)].add(state, size)

    def add_messages(self, portion: Portion, *, but: Collection[str]) -> Portion:
        """Takes the messages of a portion but those of some aggregates, which it returns."""
        left: list[int] = []
        for place, (offset, body) in enumerate(zip(portion.offsets, portion.bodies, strict=True)):
            aggregate_id = aggregate_of(body) or ""
            if aggregate_id in but:
                left.append(place)
            else:
                self._messages[self._part(aggregate_id)].add((offset, body), len(body))
        return Portion(
            [portion.offsets[place] for place in left], [portion.bodies[place] for place in left]
        )

    def parts(self) -> Iterator[tuple[Iterator[State], Iterator[Portion]]]:
        """Yields the states and the messages of each part."""
        for states, messages in zip(self._states, self._messages, strict=True):
            yield (
                (state for chunk in states.chunks() for state in _decode_states(chunk)),
                (
                    Portion(*zip(*_decode_messages(chunk), strict=True))
                    for chunk in messages.chunks()
                ),
            )

    def close(self) -> None:
        """Deletes the file."""
        self._file.close()

    def _part(self, aggregate_id: str) -> int:
        # Of all bits, because the choice of a queue may have left some of them alike; of others for each
        # level, because those of the level before are alike.
        mixed = crc32(aggregate_id.encode()) * _MIX & 0xFFFFFFFF
        return mixed >> max(32 - _PART_BITS * (self._level + 1), 0) & (_PARTS - 1)


class _Column:
    """A list in pieces of the file."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._waiting: list[Any] = []
        self._size = 0
        self._pieces: list[tuple[int, int]] = []

    def add(self, value: Any, size: int) -> None:
        self._waiting.append(value)
        self._size += size
        if self._size >= _CHUNK_BYTES:
            self._flush()

    def chunks(self) -> Iterator[bytes]:
        if self._waiting:
            self._flush()
        for place, size in self._pieces:
            self._file.seek(place)
            yield self._file.read(size)

    def _flush(self) -> None:
        data = _encode(self._waiting)
        self._pieces.append((self._file.seek(0, os.SEEK_END), len(data)))
        self._file.write(data)
        self._waiting, self._size = [], 0
