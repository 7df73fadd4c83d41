"""Small files replaced as a whole."""

import struct
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.store.segment.checkpoint import (
    CHECKPOINT_FORMAT,
    read_checkpoint,
    write_checkpoint,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.checkpoint"


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)) * 40])
def test_a_written_checkpoint_is_read_back(path: Path, files: Any, payload: bytes) -> None:
    write_checkpoint(files, path, b"older")
    write_checkpoint(files, path, payload)
    assert read_checkpoint(files, path) == payload
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]


def test_no_file_is_none(path: Path, files: Any) -> None:
    assert read_checkpoint(files, path) is None


def test_every_flipped_bit_is_noticed(path: Path, files: Any) -> None:
    write_checkpoint(files, path, b"payload")
    good = path.read_bytes()
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        # Also one in the version: a newer one would have sealed it.
        with pytest.raises(DataCorrupt, match="headrace store check"):
            read_checkpoint(files, path)


def test_every_truncation_is_noticed(path: Path, files: Any) -> None:
    write_checkpoint(files, path, b"payload")
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(DataCorrupt, match="restore it from a backup"):
            read_checkpoint(files, path)


def test_a_newer_version_is_refused_as_such(path: Path, files: Any) -> None:
    write_checkpoint(files, path, b"payload")
    newer = bytearray(path.read_bytes())
    struct.pack_into("<H", newer, 8, CHECKPOINT_FORMAT + 1)
    struct.pack_into("<I", newer, 12, google_crc32c.value(bytes(newer[:12] + newer[16:])))
    path.write_bytes(newer)
    with pytest.raises(FormatTooNew, match="start the version that wrote it"):
        read_checkpoint(files, path)


def test_a_failed_replacement_leaves_the_old_content(path: Path, files: Any) -> None:
    write_checkpoint(files, path, b"old")
    files.sync_error = OSError(5, "no")
    with pytest.raises(OSError, match="no"):
        write_checkpoint(files, path, b"new")
    files.sync_error = None
    assert read_checkpoint(files, path) == b"old"
    write_checkpoint(files, path, b"newer")
    assert read_checkpoint(files, path) == b"newer"
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]


def test_the_bytes_are_those_of_the_format_document(path: Path, files: Any) -> None:
    write_checkpoint(files, path, b"payload")
    assert path.read_bytes().hex() == (
        "485243484b504e5401001800CRC_____07000000000000007061796c6f6164"
    ).replace("CRC_____", path.read_bytes()[12:16].hex())
