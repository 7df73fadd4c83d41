import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.archive.database import ArchiveMismatch, KeptLog
from headrace_mq.errors import ArchiveUnavailable, DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.store.log.commit_log import WHOLE_LOG

QUEUE = QueueRef("orders", 0)


def bodies(shelf: Any) -> list[bytes]:
    return [row.body for row in shelf.rows.get(QUEUE, [])]


async def test_durable_messages_are_archived_once_and_in_order(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived(transaction_bytes=1)
    one.archiver.start()
    for number in range(20):
        await one.append(batch(QUEUE, [b"%d" % number]))
    await one.archiver.caught_up()
    assert bodies(shelf) == [b"%d" % number for number in range(20)]
    assert one.archiver.messages == 20
    assert one.archiver.waiting_bytes == 0


async def test_both_logs_are_archived(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived()
    one.archiver.start()
    kept = QueueRef("kept", 0)
    await one.append(batch(QUEUE, [b"a"]))
    await one.append(batch(kept, [b"b"]), retention="forever")
    await one.archiver.caught_up()
    assert shelf.rows.keys() == {QUEUE, kept}


async def test_a_commit_whose_answer_was_lost_is_not_repeated(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived(transaction_bytes=1)
    await one.append(batch(QUEUE, [b"a"]))
    await one.append(batch(QUEUE, [b"b"]))
    shelf.lost_answers = 2
    one.archiver.start()
    await one.archiver.caught_up()
    assert bodies(shelf) == [b"a", b"b"]


async def test_copying_goes_on_by_itself_when_the_database_is_back(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived()
    shelf.failing = ArchiveUnavailable("away")
    await one.append(batch(QUEUE, [b"a"]))
    with capture_logs() as logs:
        one.archiver.start()
        while len(shelf.asked) < 3:
            await asyncio.sleep(0)
        assert one.backlog.failure == "away"
        assert one.archiver.waiting_bytes > 0
        shelf.failing = None
        await one.archiver.caught_up()
    assert bodies(shelf) == [b"a"]
    told = [line for line in logs if line["log_level"] == "warning"]
    assert len(told) == 1


async def test_a_start_goes_on_where_the_database_stands(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived()
    one.archiver.start()
    await one.append(batch(QUEUE, [b"a"]))
    await one.archiver.caught_up()
    await one.aclose()
    again = archived()
    await again.append(batch(QUEUE, [b"b"]))
    again.archiver.start()
    await again.archiver.caught_up()
    assert bodies(shelf) == [b"a", b"b"]
    assert again.archiver.messages == 1


async def test_an_archive_that_is_ahead_of_the_log_is_refused(
    archived: Callable[..., Any], shelf: Any
) -> None:
    one = archived()
    shelf.kept["transient"] = KeptLog("transient", "me", 1_000)
    with pytest.raises(ArchiveMismatch, match="up to 1000, but here it ended at 0"):
        await one.archiver.connect()


async def test_a_log_that_grew_past_its_archive_while_that_was_away_is_compared_as_it_was_at_the_start(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    first = archived()
    await first.append(batch(QUEUE, [b"0"]))
    await first.archiver._turn()
    # Its folder is lost, and it starts with an older copy, or none, while the database is away.
    one = archived("restored")
    shelf.failing = ArchiveUnavailable("away")
    with pytest.raises(ArchiveUnavailable):
        await one.archiver.connect()
    for _ in range(3):
        await one.append(batch(QUEUE, [b"other"]))
    shelf.failing = None
    for _ in range(2):
        with pytest.raises(ArchiveMismatch, match="but here it ended at 0"):
            await one.archiver._turn()
    assert bodies(shelf) == [b"0"]


async def test_a_database_that_comes_back_takes_all_that_a_broker_got_meanwhile(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived()
    shelf.failing = ArchiveUnavailable("away")
    with pytest.raises(ArchiveUnavailable):
        await one.archiver.connect()
    await one.append(batch(QUEUE, [b"0"]))
    shelf.failing = None
    await one.archiver._turn()
    # The next failure compares with the log as it is then.
    one.archiver._failed(ArchiveUnavailable("away"))
    await one.append(batch(QUEUE, [b"1"]))
    await one.archiver._turn()
    assert bodies(shelf) == [b"0", b"1"]


async def test_messages_deleted_before_they_were_archived_are_reported(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived()
    for _ in range(3):
        await one.append(batch(QUEUE, [bytes(60_000)]))
    one.store.delete_segments("transient", one.store.archivable("transient")[1])
    with capture_logs() as logs:
        one.archiver.start()
        await one.archiver.caught_up()
    assert [row.queue_offset for row in shelf.rows[QUEUE]] == [2]
    assert "messages were deleted before they were archived" in {line["event"] for line in logs}


async def test_a_thread_reads_the_part_of_the_log_that_memory_does_not_hold(
    archived: Callable[..., Any],
    batch: Callable[..., bytearray],
    shelf: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, warmed = archived(), []
    monkeypatch.setattr(one.store, "is_cold", lambda log, start: True)
    monkeypatch.setattr(one.store, "warm", lambda log, start: warmed.append((log, start)))
    await one.append(batch(QUEUE, [b"a"]))
    one.archiver.start()
    await one.archiver.caught_up()
    assert warmed == [("transient", 0)]
    assert bodies(shelf) == [b"a"]


async def test_a_leader_archives_up_to_what_another_broker_may_repair(
    archived: Callable[..., Any],
    batch: Callable[..., bytearray],
    shelf: Any,
    leading: Callable[..., Any],
) -> None:
    term = leading((1, 0))
    one = archived(term=term)
    await one.append(batch(QUEUE, [b"0"]))
    position = one.store.archivable("transient")[1]
    await one.append(batch(QUEUE, [b"1"]))
    term.holds_at["transient"] = position
    await one.archiver._turn()
    assert bodies(shelf) == [b"0"]
    assert "another broker of the group may repair it" in one.backlog.failure
    del term.holds_at["transient"]
    await one.archiver._turn()
    assert bodies(shelf) == [b"0", b"1"]
    assert one.backlog.failure == ""


async def test_damage_in_what_is_archived_already_holds_up_nothing(
    archived: Callable[..., Any],
    batch: Callable[..., bytearray],
    shelf: Any,
    leading: Callable[..., Any],
) -> None:
    term = leading((1, 0))
    one = archived(term=term)
    await one.append(batch(QUEUE, [b"0"]))
    await one.archiver._turn()
    position = shelf.kept["transient"].position
    term.sound_until = lambda log, start: 0 if start < position else None
    await one.append(batch(QUEUE, [b"1"]))
    shelf.kept["forever"] = shelf.kept["forever"]._replace(position=position)
    await one.archiver._turn()
    assert bodies(shelf) == [b"0", b"1"]


async def test_a_leader_skips_damage_only_after_others_were_asked(
    tmp_path: Path,
    archived: Callable[..., Any],
    batch: Callable[..., bytearray],
    shelf: Any,
    leading: Callable[..., Any],
) -> None:
    term = leading((1, 0))
    one = archived(term=term)
    await one.append(batch(QUEUE, [b"0"]))
    position = one.store.archivable("transient")[1]
    await one.append(batch(QUEUE, [b"1" * 500]))
    await one.append(batch(QUEUE, [b"2"]))
    (file,) = (tmp_path / "store" / "transient").glob("*.log")
    content = file.read_bytes()
    at = content.index(b"1" * 500)
    file.write_bytes(content[:at] + b"x" + content[at + 1 :])

    until = [one.store.archivable("transient")[1], position]
    term.sound_until = lambda log, start: until.pop(0) if log == "transient" and until else None
    with pytest.raises(DataCorrupt, match="is damaged at"):
        await one.archiver._turn()
    assert bodies(shelf) == []
    ((log, start, length),) = term.suspected
    assert log == "transient"
    assert position <= start < start + length < one.store.archivable("transient")[1]
    await one.archiver._turn()
    assert bodies(shelf) == [b"0", b"2"], "no broker has it"


async def test_bytes_from_before_a_start_do_not_count_while_the_database_is_away(
    tmp_path: Path, archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived()
    for _ in range(3):
        await one.append(batch(QUEUE, [bytes(60_000)]))
    await one.archiver._turn()
    await one.aclose()

    shelf.failing = ArchiveUnavailable("away")
    again = archived(backlog_bytes_max=100_000)
    with pytest.raises(ArchiveUnavailable):
        await again.archiver._turn()
    assert again.archiver.waiting_bytes > 180_000
    assert again.archiver.counted_bytes == 0
    await again.append(batch(QUEUE, [bytes(60_000)]))
    assert again.backlog.refusal(again.archiver.counted_bytes) == ""
    await again.append(batch(QUEUE, [bytes(60_000)]))
    assert again.backlog.refusal(again.archiver.counted_bytes) != ""
    shelf.failing = None
    again.archiver.start()
    await again.archiver.caught_up()
    assert again.archiver.counted_bytes == 0


async def test_bytes_from_before_the_archive_do_not_count(
    archived: Callable[..., Any],
    batch: Callable[..., bytearray],
    shelf: Any,
    leading: Callable[..., Any],
) -> None:
    shelf.kept.clear()
    one = archived(term=leading((1, 0)), backlog_bytes_max=100_000)
    one.claim.kept = None
    for _ in range(3):
        await one.append(batch(QUEUE, [bytes(60_000)]))
    await one.archiver.connect()
    assert one.archiver.waiting_bytes > 180_000
    assert one.archiver.counted_bytes == 0
    for _ in range(2):
        await one.append(batch(QUEUE, [bytes(60_000)]))
    assert 120_000 < one.archiver.counted_bytes < 130_000
    one.archiver.start()
    await one.archiver.caught_up()
    assert one.archiver.counted_bytes == 0


async def test_a_leader_archives_only_what_all_in_sync_have(
    archived: Callable[..., Any],
    batch: Callable[..., bytearray],
    shelf: Any,
    leading: Callable[..., Any],
) -> None:
    one = archived(term=leading((1, 0)))
    await one.append(batch(QUEUE, [b"0"]))
    one.store.raw.keep_from("transient", one.store.archivable("transient")[1])
    await one.append(batch(QUEUE, [b"1"]))
    await one.archiver._turn()
    assert bodies(shelf) == [b"0"]
    assert one.archiver.waiting_bytes > 0
    one.store.raw.keep_from("transient", WHOLE_LOG)
    await one.archiver._turn()
    assert bodies(shelf) == [b"0", b"1"]
