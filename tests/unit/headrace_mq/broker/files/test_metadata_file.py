from pathlib import Path

import google_crc32c
import pytest

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.store.segment.checkpoint import CHECKPOINT_FORMAT


def values(path: Path) -> MetadataFile[dict[str, int]]:
    return MetadataFile(path, dict[str, int], repair="Restore it from a backup, or move it away.")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "not" / "yet" / "made" / "values.json"


def test_no_file_reads_as_none(path: Path) -> None:
    assert values(path).read() is None


def test_a_value_is_read_back_by_another_instance(path: Path) -> None:
    values(path).write({"a": 1})
    values(path).write({"b": 2})
    assert values(path).read() == {"b": 2}


def test_a_shorter_value_leaves_nothing_of_a_longer_one(path: Path) -> None:
    values(path).write({f"long name {number}": number for number in range(100)})
    path.with_name(path.name + ".new").write_bytes(b"x" * 10_000)
    values(path).write({"a": 1})
    assert values(path).read() == {"a": 1}


def test_any_flipped_byte_is_refused_with_what_to_do(path: Path) -> None:
    values(path).write({"a": 1})
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((DataCorrupt, FormatTooNew), match=r"values\.json"):
            values(path).read()


@pytest.mark.parametrize("kept", [0, 1, 10, 30])
def test_a_file_cut_short_is_refused_with_what_to_do(path: Path, kept: int) -> None:
    values(path).write({"a": 1})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataCorrupt, match="move it away"):
        values(path).read()


def test_a_value_of_another_shape_is_refused(path: Path) -> None:
    MetadataFile(path, list[str], repair="").write(["a"])
    with pytest.raises(DataCorrupt, match="is damaged"):
        values(path).read()


def test_a_file_of_a_newer_version_is_called_new_and_not_damaged(path: Path) -> None:
    values(path).write({"a": 1})
    whole = bytearray(path.read_bytes())
    whole[8] = CHECKPOINT_FORMAT + 1
    whole[12:16] = int(google_crc32c.value(bytes(whole[:12] + whole[16:]))).to_bytes(4, "little")
    path.write_bytes(whole)
    with pytest.raises(FormatTooNew):
        values(path).read()
