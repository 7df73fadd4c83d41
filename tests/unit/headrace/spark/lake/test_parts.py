"""Parts count where they are whole; a folder on the disk takes the place of Hadoop's, Spark's is tested with Spark."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.spark.lake import parts
from headrace.spark.lake.parts import LakeParts


class DiskFolder:
    """Does with files here what `HadoopFolder` does by Java."""

    def __init__(self, _spark: object, path: str) -> None:
        self.path = path
        self._place = Path(path)

    def folders(self, prefix: str) -> list[str]:
        return sorted(each.name for each in self._place.glob(f"{prefix}*"))

    def sizes(self, name: str) -> dict[str, int]:
        top = self._place / name
        files = [each for each in top.rglob("*") if each.is_file()]
        return {each.relative_to(top).as_posix(): each.stat().st_size for each in files}

    def read(self, name: str) -> bytes | None:
        place = self._place / name
        return place.read_bytes() if place.exists() else None

    def write(self, name: str, data: bytes) -> None:
        (self._place / name).write_bytes(data)

    def rename(self, name: str, to: str) -> bool:
        if (self._place / to).exists():
            return False
        (self._place / name).rename(self._place / to)
        return True

    def delete(self, name: str) -> None:
        shutil.rmtree(self._place / name, ignore_errors=True)


class Frame:
    """Writes one file where Spark would write many."""

    def __init__(self, kind: str = "long") -> None:
        self.write = self.schema = self
        self._kind = kind

    def json(self) -> str:
        fields = [{"name": "n", "type": self._kind}]
        return json.dumps({"type": "struct", "fields": fields})

    def partitionBy(self, *_: str) -> "Frame":  # noqa: N802 - PySpark's spelling
        return self

    def option(self, *_: str) -> "Frame":
        return self

    def parquet(self, place: str) -> None:
        Path(place, "day=1").mkdir(parents=True)
        Path(place, "day=1", "x.parquet").write_bytes(b"rows")
        Path(place, "_SUCCESS").touch()


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "HadoopFolder", DiskFolder)


def opened(path: Path) -> LakeParts:
    spark: Any = None
    return LakeParts(spark, str(path))


def add(found: LakeParts, end: int, kind: str = "long") -> None:
    frame: Any = Frame(kind)
    found.add(
        frame, topic="t", identity="i", start={0: end - 1}, end={0: end}, epochs={0: 3},
        partition_by=["day"],
    )  # fmt: skip


def test_parts_follow_each_other_and_name_their_files(tmp_path: Path) -> None:
    assert opened(tmp_path).last is None
    for end in (1, 2):
        add(opened(tmp_path), end)
    found = opened(tmp_path)
    assert [(part.number, part.end) for part in found.parts] == [(1, {0: 1}), (2, {0: 2})]
    assert found.parts[1].epochs == {0: 3}
    assert found.parts[1].files == {"day=1/x.parquet": 4}
    assert {each.name for each in tmp_path.iterdir()} == {"export=000001", "export=000002"}


def test_rows_of_another_type_are_refused_before_they_are_written(tmp_path: Path) -> None:
    add(opened(tmp_path), 1)
    with pytest.raises(ProjectionError, match="n is long there, and string in the application now"):
        add(opened(tmp_path), 2, "string")
    assert [each.name for each in tmp_path.iterdir()] == ["export=000001"]


@pytest.mark.parametrize("lost", ["_part.json", "day=1/x.parquet"])
def test_a_part_that_lacks_a_file_does_not_count_and_is_written_again(
    tmp_path: Path, lost: str
) -> None:
    add(opened(tmp_path), 1)
    add(opened(tmp_path), 2)
    (tmp_path / "export=000002" / lost).unlink()
    found = opened(tmp_path)
    assert [part.number for part in found.parts] == [1]
    add(found, 2)
    assert [part.number for part in opened(tmp_path).parts] == [1, 2]
    (tmp_path / "export=000001" / lost).unlink()
    with pytest.raises(ProjectionError, match="export=000002 does not follow the part before it"):
        opened(tmp_path)


def test_of_two_exports_at_once_the_second_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    add(one, 1)
    with pytest.raises(ProjectionError, match="another export has written export=000001 meanwhile"):
        add(other, 1)
    assert [each.name for each in tmp_path.iterdir()] == ["export=000001"]


def test_a_description_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    add(opened(tmp_path), 1)
    (tmp_path / "export=000001" / "_part.json").write_text("{")
    with pytest.raises(ProjectionError, match="export=000001 is no part"):
        opened(tmp_path)
