"""Followers of a projection: woken at each change, by one look for all, and while there is one."""

import asyncio

import pytest
from structlog.testing import capture_logs

from headrace.gateway.sse.changes import Changes
from headrace.transports.base import QueueId

SOON_MS = 10_000
QUEUE: QueueId = ("shop.events", 0)


class Rows:
    """Offsets of projections that a test moves; every look is counted, and can fail."""

    def __init__(self) -> None:
        self.live = 1
        self.at: dict[QueueId, int] = {}
        self.failure: Exception | None = None
        self.looks = 0
        self._looked = asyncio.Event()

    async def generation(self, name: str) -> int:
        assert name == "orders"
        return self.live

    async def offsets(self, name: str, generation: int) -> dict[QueueId, int]:
        assert (name, generation) == ("orders", self.live)
        self.looks += 1
        self._looked.set()
        if self.failure is not None:
            raise self.failure
        return dict(self.at)

    async def looked(self, times: int = 1) -> None:
        """Waits for further looks."""
        for _ in range(times):
            self._looked.clear()
            await self._looked.wait()


@pytest.fixture
async def rows() -> Rows:
    """A projection without events."""
    return Rows()


@pytest.fixture
async def changes(rows: Rows) -> Changes:
    """Looks as often as the loop lets it."""
    return Changes(rows, look_ms=0)


async def test_a_follower_is_woken_by_offsets_and_by_a_switch(rows: Rows, changes: Changes) -> None:
    with changes.follow("orders") as follower:
        rows.at[QUEUE] = 7
        assert await follower.changed(SOON_MS)
        await rows.looked(2)
        rows.live = 2
        assert await follower.changed(SOON_MS)


async def test_a_follower_is_left_alone_while_nothing_changes(rows: Rows, changes: Changes) -> None:
    with changes.follow("orders") as follower:
        rows.at[QUEUE] = 7
        assert await follower.changed(SOON_MS)
        await rows.looked(3)
        assert not await follower.changed(0)


async def test_a_change_between_reading_and_waiting_is_not_missed(
    rows: Rows, changes: Changes
) -> None:
    with changes.follow("orders") as first:
        rows.at[QUEUE] = 1
        assert await first.changed(SOON_MS)
        with changes.follow("orders") as second:  # and reads its rows here
            rows.at[QUEUE] = 2
            await rows.looked(2)
            assert await second.changed(0)
            assert await first.changed(0)


async def test_one_look_serves_all_and_ends_with_the_last_follower(
    rows: Rows, changes: Changes
) -> None:
    with changes.follow("orders"), changes.follow("orders"):
        assert changes.followers == 2
        tasks = [task for task in asyncio.all_tasks() if "changes of" in task.get_name()]
        assert len(tasks) == 1
    await asyncio.wait(tasks)
    seen = rows.looks
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    assert (changes.followers, rows.looks) == (0, seen)


async def test_a_database_that_is_away_is_looked_at_again_and_logged_once(
    rows: Rows, changes: Changes
) -> None:
    rows.failure = ConnectionRefusedError("no")
    with capture_logs() as logs, changes.follow("orders") as follower:
        await rows.looked(3)
        rows.failure = None
        rows.at[QUEUE] = 1
        assert await follower.changed(SOON_MS)
    assert [each["event"] for each in logs] == ["changes are not seen"]


async def test_stop_wakes_everybody_for_good(rows: Rows, changes: Changes) -> None:
    with changes.follow("orders") as follower:
        waiting = asyncio.create_task(follower.changed(SOON_MS))
        await rows.looked()
        changes.stop()
        assert await waiting
        assert changes.stopped
