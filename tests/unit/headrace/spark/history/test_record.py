"""What says that a part is sealed, and finds that it was changed since."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.errors import ProjectionError
from headrace.spark.archive import (
    ExportedPart,
    digest_of,
    digests_of,
    exported_parts,
    finish_part,
    manifest_of,
    part_folder,
    writing_part,
)
from headrace.spark.history.overview import overview
from headrace.spark.history.record import (
    SealedRecord,
    changed_files,
    read_record,
    sealed_through,
    write_record,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def write_part(folder: Path, number: int) -> ExportedPart:
    with writing_part(folder) as place:
        (place / "messages").mkdir()
        (place / "messages" / "queue-000.parquet").write_bytes(b"%d" % number)
        part = ExportedPart(
            number=number, app="a:app", topic="a.events", start={0: 10 * number - 10},
            end={0: 10 * number}, messages=10, events={"Poured": 9}, files=digests_of(place),
            vouched=True,
        )  # fmt: skip
        finish_part(place, part)
    return part


def seal(folder: Path, part: ExportedPart, store: str = "s-1") -> SealedRecord:
    manifest = digest_of(manifest_of(part_folder(folder, part.number)))
    record = SealedRecord(
        part=part.number,
        manifest=manifest,
        store=store,
        sealed_at=NOW,
        messages=10,
        topic_identity="t-1",
    )
    write_record(folder, record)
    return record


def test_a_record_is_read_as_it_was_written_and_a_part_without_one_is_not_sealed(
    tmp_path: Path,
) -> None:
    first, _ = write_part(tmp_path, 1), write_part(tmp_path, 2)
    record = seal(tmp_path, first)
    assert read_record(tmp_path, 1) == record
    assert read_record(tmp_path, 2) is None
    listed = overview(tmp_path)
    assert [(each.part, each.events, each.sealed_at, each.store) for each in listed] == [
        (1, 9, NOW, "s-1"),
        (2, 9, None, ""),
    ]


def test_a_description_that_was_changed_after_it_was_sealed_is_refused(tmp_path: Path) -> None:
    seal(tmp_path, write_part(tmp_path, 1))
    manifest = manifest_of(part_folder(tmp_path, 1))
    manifest.write_bytes(manifest.read_bytes().replace(b'"messages":10', b'"messages":11'))
    with pytest.raises(ProjectionError, match=r"export\.json is not the one that was sealed"):
        read_record(tmp_path, 1)


def test_a_record_that_cannot_be_read_is_refused_and_one_half_written_is_none(
    tmp_path: Path,
) -> None:
    write_part(tmp_path, 1)
    (part_folder(tmp_path, 1) / ".sealed.json.writing").write_bytes(b'{"par')
    assert read_record(tmp_path, 1) is None
    (part_folder(tmp_path, 1) / "sealed.json").write_bytes(b'{"par')
    with pytest.raises(ProjectionError, match="seal the part again"):
        read_record(tmp_path, 1)


def test_parts_are_sealed_up_to_the_first_that_is_not_or_that_another_store_has_sealed(
    tmp_path: Path,
) -> None:
    parts = [write_part(tmp_path, number) for number in (1, 2, 3)]
    assert sealed_through(tmp_path, exported_parts(tmp_path)) is None
    seal(tmp_path, parts[0])
    seal(tmp_path, parts[2])
    assert sealed_through(tmp_path, parts) == parts[0]
    seal(tmp_path, parts[1], store="s-2")
    assert sealed_through(tmp_path, parts) == parts[0]
    seal(tmp_path, parts[1])
    assert sealed_through(tmp_path, parts) == parts[2]


def test_files_that_were_changed_lost_or_added_are_named(tmp_path: Path) -> None:
    part = write_part(tmp_path, 1)
    assert changed_files(tmp_path, part) == []
    messages = part_folder(tmp_path, 1) / "messages"
    (messages / "queue-001.parquet").write_bytes(b"more")
    (messages / "queue-000.parquet").write_bytes(b"2")
    changed = changed_files(tmp_path, part)
    assert [sentence.rpartition("/")[2] for sentence in changed] == [
        "queue-000.parquet is not the file that was exported",
        "queue-001.parquet is not of the part",
    ]
    (messages / "queue-000.parquet").unlink()
    assert changed_files(tmp_path, part)[0].endswith("queue-000.parquet is missing")
