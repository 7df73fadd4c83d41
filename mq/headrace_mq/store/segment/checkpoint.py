"""
Small files that are replaced as a whole: a reader finds the old content or the new one, never a mix.

      0          8     10     12    16       20   24
    ┌──────────┬─────┬──────┬─────┬────────┬────┬───────────┐
    │ magic    │form.│header│ CRC │ payload│ 0  │ payload … │   little-endian; the CRC-32C is over
    │"HRCHKPNT"│ u16 │bytes │ u32 │ bytes  │    │           │   bytes 0-11 and 16 to the end
    └──────────┴─────┴──────┴─────┴────────┴────┴───────────┘

Used by `message_store` and by the broker, for its topics and offsets. The owner defines the
payload.
"""

import struct
from pathlib import Path

import google_crc32c

from headrace_mq._runtime.files import Files, write_all
from headrace_mq.errors import DataCorrupt, FormatTooNew

__all__ = ["CHECKPOINT_FORMAT", "read_checkpoint", "write_checkpoint"]

MAGIC = b"HRCHKPNT"
CHECKPOINT_FORMAT = 1
_HEADER = struct.Struct("<8sHHIII")
_CRC_AT, _AFTER_CRC = 12, 16
_ADVICE = (
    "restore it from a backup, or go on as `headrace store check DIR` and `headrace store repair"
    " DIR` say (DIR: the broker's data directory)"
)


def _crc(content: bytes) -> int:
    return int(google_crc32c.value(content[:_CRC_AT] + content[_AFTER_CRC:]))


def write_checkpoint(files: Files, path: Path, payload: bytes) -> None:
    """Replaces the file's content, durably.

    Raises:
        OSError: the file holds the old content or the new one, never a mix.
    """
    plain = _HEADER.pack(MAGIC, CHECKPOINT_FORMAT, _HEADER.size, 0, len(payload), 0) + payload
    content = plain[:_CRC_AT] + struct.pack("<I", _crc(plain)) + plain[_AFTER_CRC:]
    unfinished = path.with_name(path.name + ".new")
    fd = files.open(unfinished, create=True)
    try:
        write_all(files, fd, 0, [content])
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(unfinished, path)
    files.sync_directory(path.parent)


def read_checkpoint(files: Files, path: Path) -> bytes | None:
    """Returns the payload, or None if the file does not exist.

    Raises:
        DataCorrupt: the file exists but is damaged; never treat it as missing.
        FormatTooNew: a newer version wrote it.
    """
    try:
        fd = files.open(path)
    except FileNotFoundError:
        return None
    try:
        content = files.read(fd, 0, files.size(fd))
    finally:
        files.close(fd)
    if len(content) < _HEADER.size or not content.startswith(MAGIC):
        raise DataCorrupt(f"{path} is no checkpoint; {_ADVICE}")
    _, version, header_bytes, crc, payload_bytes, _ = _HEADER.unpack_from(content)
    # Checked first, so that a flipped bit in the version is damage, not a newer version.
    if crc != _crc(content):
        raise DataCorrupt(f"{path} fails its checksum; {_ADVICE}")
    if version > CHECKPOINT_FORMAT:
        raise FormatTooNew(
            f"{path} has checkpoint format {version}, this version reads up to"
            f" {CHECKPOINT_FORMAT}; start the version that wrote it"
        )
    if header_bytes + payload_bytes != len(content):
        raise DataCorrupt(f"{path} contradicts itself; {_ADVICE}")
    return content[header_bytes:]
