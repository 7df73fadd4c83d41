"""Parts of exported events appear whole, follow each other, and are read like the topic."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import ProjectionError
from headrace.spark import archive
from headrace.spark.archive import (
    ExportedPart,
    after_archive,
    archived_in,
    check_file,
    digests_of,
    ends_of,
    exported_parts,
    files_of,
    finish_part,
    held_with,
    parquet_at,
    queue_file,
    read_archived,
    writing_part,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.columns import ARROW_SCHEMA
from headrace_mq.spark.offsets import QueueSlice

TOPIC = "ledger.events"
WritePart = Callable[..., ExportedPart]


def messages(start: int, end: int) -> pa.Table:
    """One message per offset; every fifth is a rejection, every third begins another moment."""
    return pa.Table.from_pylist(
        [
            {
                "topic": TOPIC, "queue_id": 0, "offset": offset, "key": f"k{offset}", "tag": "",
                "headers": {"kind": "rejection" if offset % 5 == 4 else "events"},
                "body": b"b%d" % offset,
                "born_at": datetime(2026, 1, 1, tzinfo=UTC),
                "stored_at": datetime(2026, 1, 1, 0, 0, offset // 3, tzinfo=UTC),
            }
            for offset in range(start, end)
        ],
        schema=ARROW_SCHEMA,
    )  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> WritePart:
    """Writes the next part of a folder: queue 0 from one offset to another."""

    def write_part(start: int, end: int, *, topic: str = TOPIC, number: int = 0) -> ExportedPart:
        part = ExportedPart(
            number=number or len(list(tmp_path.glob("export-*"))) + 1,
            app="a:b", topic=topic, start={0: start}, end={0: end},
        )  # fmt: skip
        with writing_part(tmp_path) as place:
            with parquet_at(queue_file(place, "messages", 0), ARROW_SCHEMA) as writer:
                writer.write_table(messages(start, end))
            part = msgspec.structs.replace(part, files=digests_of(place))
            finish_part(place, part)
        return part

    return write_part


def piece(start: int, end: int) -> QueueSlice:
    return QueueSlice(queue=QueueRef(TOPIC, 0), start=start, end=end)


def held(first: int, end: int, queue_id: int = 0) -> QueueRange:
    return QueueRange(TOPIC, queue_id, first, end)


def test_parts_are_found_in_order_and_again(write: WritePart, tmp_path: Path) -> None:
    assert exported_parts(tmp_path / "nowhere") == []
    written = [write(0, 7), write(7, 9)]
    assert exported_parts(tmp_path) == written
    files = files_of(tmp_path, TOPIC)
    assert [(each.start, each.end, each.queue_id) for each in files] == [(0, 7, 0), (7, 9, 0)]
    assert all(Path(each.path).is_file() for each in files)


@pytest.mark.parametrize("change", ["gap", "missing", "broken", "topic"])
def test_parts_that_do_not_follow_each_other_are_an_error(
    change: str, write: WritePart, tmp_path: Path
) -> None:
    write(0, 7)
    if change == "gap":
        write(8, 9)
    elif change == "missing":
        write(7, 9, number=3)
    elif change == "topic":
        write(7, 9, topic="other.events")
    else:
        write(7, 9)
        (tmp_path / "export-000002" / "export.json").write_text("{", encoding="utf-8")
    with pytest.raises(ProjectionError, match=r"export-00000\d (does not follow|is no exported)"):
        exported_parts(tmp_path)


def test_files_of_another_topic_or_of_none_are_refused(write: WritePart, tmp_path: Path) -> None:
    with pytest.raises(ProjectionError, match="holds no exported events; write some with"):
        files_of(tmp_path, TOPIC)
    write(0, 7)
    with pytest.raises(ProjectionError, match=r"holds events of ledger\.events, not of x\.events"):
        files_of(tmp_path, "x.events")


@pytest.mark.parametrize(("start", "end"), [(0, 12), (3, 9), (7, 8), (12, 12), (20, 30)])
def test_a_slice_is_read_without_rejections_and_by_moments(
    start: int, end: int, write: WritePart, tmp_path: Path
) -> None:
    write(0, 7)
    write(7, 12)
    read = list(read_archived(files_of(tmp_path, TOPIC), piece(start, end)))
    wanted = [each for each in range(start, min(end, 12)) if each % 5 != 4]
    assert [message for _, some in read for message in some] == (
        [(offset, f"k{offset}", b"b%d" % offset) for offset in wanted]
    )
    begin_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000)
    for moment, some in read:
        assert {begin_ms + offset // 3 * 1_000 for offset, _, _ in some} == {moment}


def test_large_messages_are_read_some_at_a_time(
    write: WritePart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(0, 120)
    files = files_of(tmp_path, TOPIC)
    whole = [message for _, some in read_archived(files, piece(0, 120)) for message in some]
    monkeypatch.setattr(archive, "_BATCH_BYTES", 1 << 10)
    with pq.ParquetFile(files[0].path) as parquet:
        assert 1 <= archive.messages_at_once(parquet.metadata) <= 30
    read = [message for _, some in read_archived(files, piece(0, 120)) for message in some]
    assert read == whole


def test_a_file_that_is_not_there_is_an_error_that_says_what_to_do(
    write: WritePart, tmp_path: Path
) -> None:
    write(0, 7)
    files = files_of(tmp_path, TOPIC)
    Path(files[0].path).unlink()
    with pytest.raises(ProjectionError, match="every Spark executor has to see the folder"):
        list(read_archived(files, piece(0, 7)))


def test_what_lies_behind_the_files_is_for_the_broker(write: WritePart, tmp_path: Path) -> None:
    write(0, 7)
    write(7, 9)
    files = files_of(tmp_path, TOPIC)
    assert after_archive(files, piece(0, 12)) == piece(9, 12)
    assert after_archive(files, piece(10, 12)) == piece(10, 12)
    assert after_archive(files, piece(0, 9)) is None
    assert after_archive((), piece(0, 9)) == piece(0, 9)
    assert [archived_in(files, piece(*each)) for each in ((0, 12), (3, 8), (10, 12))] == [9, 5, 0]


def test_a_part_is_there_whole_or_not_at_all(write: WritePart, tmp_path: Path) -> None:
    write(0, 7)

    def fails() -> None:
        with writing_part(tmp_path) as place:
            (place / "half").write_text("half", encoding="utf-8")
            assert len(exported_parts(tmp_path)) == 1
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == ["export-000001"]


def test_what_a_killed_export_left_is_cleared_away(write: WritePart, tmp_path: Path) -> None:
    (tmp_path / ".writing" / "messages").mkdir(parents=True)
    (tmp_path / ".writing" / "messages" / "queue-007.parquet").write_bytes(b"half")
    assert exported_parts(tmp_path) == []
    write(0, 7)
    assert not list(tmp_path.rglob("queue-007.parquet"))


def test_two_exports_at_once_are_refused(tmp_path: Path) -> None:
    with (
        writing_part(tmp_path),
        pytest.raises(ProjectionError, match="another export is writing into"),
        writing_part(tmp_path),
    ):
        raise AssertionError("this is never reached")


def test_broker_and_files_hold_a_queue_together(write: WritePart, tmp_path: Path) -> None:
    write(2, 7)
    files = files_of(tmp_path, TOPIC)
    assert held_with(files, [held(5, 9), held(3, 4, 1)]) == [held(2, 9), held(3, 4, 1)]
    assert held_with(files, [held(0, 9)]) == [held(0, 9)]
    with pytest.raises(
        ProjectionError,
        match=r"offsets 7 to 8 were deleted before they were exported; .* --from store",
    ):
        held_with(files, [held(9, 12)])
    with pytest.raises(
        ProjectionError, match=r"deleted and made again, .* into an empty folder; .* --from store"
    ):
        held_with(files, [held(0, 6)])


def test_the_next_part_begins_where_the_last_one_ends(write: WritePart, tmp_path: Path) -> None:
    assert ends_of([], [held(3, 9)]) == {QueueRef(TOPIC, 0): 3}
    parts = [write(0, 7)]
    assert ends_of(parts, [held(3, 9), held(0, 2, 1)]) == {
        QueueRef(TOPIC, 0): 7,
        QueueRef(TOPIC, 1): 0,
    }
    with pytest.raises(ProjectionError, match="has no queue 0 any more"):
        ends_of(parts, [held(0, 2, 1)])
    with pytest.raises(ProjectionError, match="deleted before they were exported"):
        ends_of(parts, [held(8, 9)])


def test_a_file_that_was_changed_or_removed_is_told_from_the_one_that_was_exported(
    write: WritePart, tmp_path: Path
) -> None:
    write(0, 7)
    part = tmp_path / "export-000001"
    [(name, digest)] = digests_of(part).items()
    assert name == "messages/queue-000.parquet"
    path = part / name
    check_file(path, digest)
    assert [file.path for file in files_of(tmp_path, TOPIC)] == [str(path)]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ProjectionError, match="is not the file that was exported"):
        files_of(tmp_path, TOPIC)
    with pytest.raises(
        ProjectionError, match=r"queue-000\.parquet is not the file that was exported"
    ):
        check_file(path, digest)
    path.unlink()
    with pytest.raises(ProjectionError, match="cannot be read"):
        check_file(path, digest)


def test_a_queue_that_begins_behind_where_a_rebuild_stands_is_refused_with_what_to_do() -> None:
    held = [QueueRange("t", 0, 5, 9, 0), QueueRange("t", 1, 0, 9, 0)]
    archive.check_begins("stock", held, {("t", 0): 5})
    with pytest.raises(ProjectionError, match=r"--from-export DIR`\) or from the event store"):
        archive.check_begins("stock", held, {("t", 0): 4})
    archive.check_whole(held[1:])
    with pytest.raises(ProjectionError, match="earlier messages were trimmed"):
        archive.check_whole(held)


def test_a_topic_that_was_made_again_or_whose_broker_tells_no_start_has_lost_nothing() -> None:
    held = [QueueRange("t", 0, 5, 9, start=5), QueueRange("t", 1, 5, 9)]
    archive.check_begins("stock", held, {})
    archive.check_whole(held)
    (one,) = archive.held_with([], held[:1])
    assert one.start == 5
