"""
Record batches with right checksums that no reader can decode, as a hostile or broken producer makes them.

    hostile_batches     one of every kind, by name
    mutated             a sound batch with damaged bytes and checksums that fit them again

Used by tests. Pure.
"""

import random
import struct
from collections.abc import Mapping

import google_crc32c
import msgspec

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.protocol.compression import CODECS, compress

__all__ = ["REFUSED", "UNSEEN", "hostile_batches", "mutated"]

_BODY_AT, _BODY_CRC_AT, _LENGTH_AT = 52, 48, 8
_CODEC_AT, _COUNT_AT, _PLAIN_AT = 52, 56, 104
_U32 = struct.Struct("<I")
_COUNT = 3
# What a broker refuses, and what it cannot see without unpacking or decoding.
REFUSED = (
    "no msgpack", "nested without end", "unknown codec", "4 GiB plain", "no bodies", "65,536 records",
    "columns differ", "four columns", "text for a column", "lz4 of too little",
)  # fmt: skip
UNSEEN = ("numbers for keys", "texts for bodies", "no lz4", "no zstd", "lz4 bomb", "lz4 of entries")


def hostile_batches(queue: QueueRef) -> Mapping[str, bytearray]:
    """One batch of every kind; each says that it has at least one record."""
    encode = msgspec.msgpack.encode
    bodies = [b"x"] * _COUNT
    plain = encode([[], [], [], bodies, []])
    bomb = bytes(60 << 20)
    # A tenth of a MiB that would become a million dictionaries.
    entries = encode([[], [], [{}] * 1_000_000, bodies, []])
    lz4, zstd = CODECS["lz4"], CODECS["zstd"]
    return {
        "no msgpack": _batch(queue, b"\xc1 no msgpack"),
        "nested without end": _batch(queue, b"\x95" + b"\x91" * 100_000),
        "unknown codec": _batch(queue, plain, codec=9),
        "4 GiB plain": _batch(queue, compress(lz4, plain), codec=lz4, plain_bytes=(1 << 32) - 1),
        "no bodies": _batch(queue, encode([[], [], [], [], []])),
        "65,536 records": _batch(queue, plain, count=65_536),
        "columns differ": _batch(queue, encode([["k"], [], [], bodies, []])),
        "four columns": _batch(queue, encode([[], [], [], bodies])),
        "text for a column": _batch(queue, encode(["k", [], [], bodies, []])),
        "lz4 of too little": _batch(queue, compress(lz4, plain), codec=lz4, plain_bytes=_COUNT),
        "numbers for keys": _batch(queue, encode([[1, 2, 3], [], [], bodies, []])),
        "texts for bodies": _batch(queue, encode([[], [], [], ["x"] * _COUNT, []])),
        "no lz4": _batch(queue, b"no lz4 block", codec=lz4, plain_bytes=len(plain)),
        "no zstd": _batch(queue, b"no zstd frame", codec=zstd, plain_bytes=len(plain)),
        "lz4 bomb": _batch(queue, compress(lz4, bomb), codec=lz4, plain_bytes=len(bomb)),
        "lz4 of entries": _batch(
            queue, compress(lz4, entries), codec=lz4, plain_bytes=len(entries)
        ),
    }  # fmt: skip


def mutated(batch: bytes | bytearray, chance: random.Random) -> bytearray:
    """A batch of the same length with one to four damaged places in what its producer wrote.

    Topic, queue and producer stay: the damage concerns that queue alone.
    """
    result = bytearray(batch)
    payload_at = read_header(batch).payload_at
    fields = (_CODEC_AT, _COUNT_AT, _COUNT_AT + 1, _PLAIN_AT, _PLAIN_AT + 3)
    for _ in range(chance.randint(1, 4)):
        if chance.random() < 0.2:
            result[chance.choice(fields)] = chance.randrange(256)
            continue
        at = chance.randrange(payload_at, len(result))
        match chance.randrange(3):
            case 0:
                result[at] ^= 1 << chance.randrange(8)
            case 1:
                result[at] = chance.choice((0x00, 0x80, 0x90, 0xC1, 0xC4, 0xDD, 0xDF, 0xFF))
            case _:
                noise = chance.randbytes(min(8, len(result) - at))
                result[at : at + len(noise)] = noise
    return _sealed(result)


def _batch(
    queue: QueueRef,
    payload: bytes,
    *,
    codec: int = 0,
    count: int = _COUNT,
    plain_bytes: int | None = None,
) -> bytearray:
    like = encode_batch(queue, Columns([], [], [], [b""], []), born_first_ms=1)
    batch = like[: read_header(like).payload_at] + payload
    batch[_CODEC_AT] = codec
    _U32.pack_into(batch, _LENGTH_AT, len(batch))
    _U32.pack_into(batch, _COUNT_AT, count)
    _U32.pack_into(batch, _PLAIN_AT, len(payload) if plain_bytes is None else plain_bytes)
    return _sealed(batch)


def _sealed(batch: bytearray) -> bytearray:
    _U32.pack_into(batch, _BODY_CRC_AT, google_crc32c.value(bytes(batch[_BODY_AT:])))
    return batch
