"""
The codecs of a record batch's payload.

Used by `batch`, `sparse` and the store's check of batches. Loads the libraries of lz4 and zstd when
they are needed. Pure: no clock, no I/O.
"""

from collections.abc import Mapping
from types import MappingProxyType

from headrace_mq.errors import UndecodableBatch

__all__ = ["CODECS", "PLAIN_BYTES_MAX", "compress", "decompress"]

# What a compressed payload may unpack to: 16 times the largest frame, so that a small hostile
# batch cannot fill a reader's memory.
PLAIN_BYTES_MAX = 64 << 20

_NONE, _LZ4, _ZSTD = 0, 1, 2
CODECS: Mapping[str, int] = MappingProxyType({"none": _NONE, "lz4": _LZ4, "zstd": _ZSTD})


def compress(codec: int, payload: bytes) -> bytes:
    """Packs a payload with the codec of a number in `CODECS`."""
    if codec == _NONE:
        return payload
    if codec == _LZ4:
        import lz4.block

        return bytes(lz4.block.compress(payload, store_size=False))
    import zstandard

    return zstandard.ZstdCompressor(level=1).compress(payload)


def decompress(codec: int, payload: bytes | memoryview, plain_bytes: int) -> bytes | memoryview:
    """Unpacks a payload that says to have so many bytes.

    Raises:
        UndecodableBatch: it does not unpack, or to something else.
    """
    if codec == _NONE:
        return payload
    if plain_bytes > PLAIN_BYTES_MAX:
        raise UndecodableBatch(f"a payload unpacks to {plain_bytes} bytes, over {PLAIN_BYTES_MAX}")
    if codec == _LZ4:
        import lz4.block

        try:
            return bytes(lz4.block.decompress(payload, uncompressed_size=plain_bytes))
        except lz4.block.LZ4BlockError as error:
            raise UndecodableBatch(f"a payload is no lz4 block: {error}") from error
    if codec == _ZSTD:
        import zstandard

        try:
            # zstd believes its own header, not a limit, so the two have to agree first.
            if zstandard.frame_content_size(payload) != plain_bytes:
                raise UndecodableBatch(
                    "a payload and its header disagree about the unpacked length"
                )
            return zstandard.ZstdDecompressor().decompress(payload)
        except zstandard.ZstdError as error:
            raise UndecodableBatch(f"a payload is no zstd frame: {error}") from error
    raise UndecodableBatch(f"a batch names codec {codec}, which does not exist")
