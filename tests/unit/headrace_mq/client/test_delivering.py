import asyncio

import pytest

from headrace_mq.client.delivering import Delivering
from headrace_mq.client.process_queue import WindowLimits
from headrace_mq.client.shares import Shares
from headrace_mq.errors import Closed
from headrace_mq.message import QueueRef, Record

MANY = 1 << 30
A = QueueRef("t", 0)


def record(offset: int) -> Record:
    return Record(
        queue=A, offset=offset, key="", tag="", headers={}, body=b"", born_at_ms=0, stored_at_ms=0
    )


class Opened:
    """A consumer's side that holds queue A, from offset 0."""

    def __init__(self) -> None:
        self.rooms = 0
        self.shares = Shares(WindowLimits(1, MANY, MANY))
        self.shares.assign([A])
        self.shares.start(A, 0, known=False, committed=-1)
        self.delivering = Delivering(self.shares, on_room=self._room)
        self.delivering.open()

    def _room(self) -> None:
        self.rooms += 1

    def buffer(self, *offsets: int) -> None:
        share = self.shares.get(A)
        assert share is not None
        self.shares.take(share, [record(offset) for offset in offsets])
        self.delivering.wake()


@pytest.fixture
def opened() -> Opened:
    return Opened()


async def test_poll_waits_for_records(opened: Opened) -> None:
    polling = asyncio.create_task(opened.delivering.poll())
    await asyncio.sleep(0)
    opened.delivering.wake()
    await asyncio.sleep(0)
    assert not polling.done()
    opened.buffer(0)
    assert await polling == [record(0)]


async def test_an_error_is_raised_once_and_before_records(opened: Opened) -> None:
    opened.buffer(0)
    opened.delivering.fail(LookupError("what"))
    with pytest.raises(LookupError):
        await opened.delivering.poll()
    assert await opened.delivering.poll() == [record(0)]


async def test_the_end_is_told_to_who_waits_and_who_comes_later(opened: Opened) -> None:
    polling = asyncio.create_task(opened.delivering.poll())
    await asyncio.sleep(0)
    opened.delivering.close()
    with pytest.raises(Closed):
        await polling
    with pytest.raises(Closed):
        await opened.delivering.poll()


async def test_an_acknowledgement_that_makes_room_is_told(opened: Opened) -> None:
    opened.buffer(0)
    opened.delivering.ack(A, 0)
    opened.delivering.ack(A, 0)
    assert opened.rooms == 1


async def test_an_attempt_begins_on_what_is_held_and_acknowledges_when_it_is_done(
    opened: Opened,
) -> None:
    opened.buffer(0)
    assert await opened.delivering.begin(record(0))
    opened.delivering.end(record(0), done=False)
    assert opened.shares.holds(A, 0)
    opened.delivering.end(record(0), done=True)
    assert not await opened.delivering.begin(record(0))
    assert opened.rooms == 1
