from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.archive.archive import Archive
from headrace_mq.archive.claim import KeptArchive
from headrace_mq.archive.database import ArchiveMismatch
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.message import QueueRef
from headrace_mq.settings import ArchiveSettings, StoreSettings
from headrace_mq.testing.clock import ManualClock

QUEUE = QueueRef("orders", 0)
Open = Callable[..., Awaitable[Archive]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the archive of a store in a folder; everything is closed at the end."""
    made: list[Archive] = []

    async def make(
        url: str, kept: list[KeptArchive], folder: str = "store", **changed: Any
    ) -> Archive:
        store = StoreSettings(directory=tmp_path / folder, segment_bytes=64 << 10)
        clock = ManualClock()
        archive = Archive(
            ArchiveSettings(url=url, interval_ms=1, **changed),
            store,
            clock=clock,
            keep=kept.append,
        )
        archive.store(epoch=lambda: 1, clock=clock, files=SystemFiles()).open()
        made.append(archive)
        await archive.open(kept[-1] if kept else None)
        return archive

    yield make
    for archive in made:
        await archive.aclose()
        await archive._store.aclose()


async def close(archive: Archive) -> None:
    await archive.aclose()
    await archive._store.aclose()


async def test_a_store_is_archived_under_a_name_that_both_sides_keep(
    opened: Open, archive_url: str, batch: Callable[..., bytearray]
) -> None:
    kept: list[KeptArchive] = []
    archive = await opened(archive_url, kept)
    assert [one.begun for one in kept] == [False, True]
    archive._store.append(batch(QUEUE, [b"a"]), retention="transient")
    await archive._store.durable()
    await archive.archiver.caught_up()
    assert archive.describe().messages == 1
    assert archive.describe().waiting_bytes == 0
    await close(archive)
    again = await opened(archive_url, kept)
    assert len(kept) == 2
    assert again.position("transient") > 0


async def test_a_start_completes_an_archive_that_a_crash_left_half_begun(
    opened: Open, archive_url: str
) -> None:
    kept = [KeptArchive("mine", begun=False)]
    await opened(archive_url, kept)
    assert kept[-1] == KeptArchive("mine", begun=True)


async def test_two_brokers_cannot_share_an_archive(opened: Open, archive_url: str) -> None:
    await opened(archive_url, [])
    with pytest.raises(ArchiveMismatch, match="another broker's folder"):
        await opened(archive_url, [], folder="other")
    with pytest.raises(ArchiveMismatch, match="another broker's folder"):
        await opened(archive_url, [KeptArchive("other", begun=True)], folder="third")


async def test_an_empty_database_is_not_taken_for_the_archive_that_was(
    opened: Open, archive_url: str
) -> None:
    with pytest.raises(ArchiveMismatch, match="holds no archive, but"):
        await opened(archive_url, [KeptArchive("mine", begun=True)])


async def test_a_database_that_is_away_stops_a_first_start_and_no_later_one(
    opened: Open, free_port: Callable[[], int]
) -> None:
    url = f"postgresql://me@127.0.0.1:{free_port()}/x"
    with pytest.raises(ArchiveUnavailable):
        await opened(url, [])
    archive = await opened(url, [KeptArchive("mine", begun=True)], folder="other")
    assert "does not answer" in archive.describe().failure
    assert archive._store.range(QUEUE) == (0, 0)


async def test_a_large_backlog_raises_an_alarm_and_then_refuses_messages(
    opened: Open, free_port: Callable[[], int], batch: Callable[..., bytearray]
) -> None:
    url = f"postgresql://me@127.0.0.1:{free_port()}/x"
    kept = [KeptArchive("mine", begun=True)]
    archive = await opened(url, kept, alarm_bytes=100, backlog_bytes_max=200)
    assert archive.refusal == ""
    with capture_logs() as logs:
        for number in range(2):
            archive._store.append(batch(QUEUE, [b"%d" % number]), retention="transient")
        await archive._store.durable()
        archive.look()
    assert "the archive is far behind" in {line["event"] for line in logs}
    assert "does not answer" in archive.describe().alarm
    assert "accepts messages again" in archive.refusal


async def test_segments_go_that_the_archive_has(
    opened: Open, archive_url: str, batch: Callable[..., bytearray]
) -> None:
    archive = await opened(archive_url, [], window_bytes=0)
    for _ in range(3):
        archive._store.append(batch(QUEUE, [bytes(60_000)]), retention="transient")
        await archive._store.durable()
    await archive.archiver.caught_up()
    before = archive.beyond_window("transient")
    assert archive._store.delete_segments("transient", before) == 2
    assert archive._store.range(QUEUE) == (0, 3)
