import asyncio

import pytest

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.client.fetch.assigned_queues import Shares
from headrace_mq.client.fetch.delivery import Delivering
from headrace_mq.client.fetch.process_queue import WindowLimits
from headrace_mq.client.fetch.record_columns import from_records
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.errors import Closed
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

MANY = 1 << 30
A = QueueRef("t", 0)


def record(offset: int) -> Record:
    return Record(
        queue=A, offset=offset, key="", tag="", headers={}, body=b"", born_at_ms=0, stored_at_ms=0
    )


class HandClock:
    """Time that a test moves."""

    time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


class Opened:
    """A consumer's side that holds queue A, from offset 0."""

    def __init__(self) -> None:
        self.rooms = 0
        self.waits = 0
        self.shares = Shares(WindowLimits(1, MANY, MANY))
        self.shares.assign([A])
        self.shares.start(A, 0, known=False, committed=-1)
        self.clock = HandClock()
        link = Link("127.0.0.1:1", client_id="me", settings=LinkSettings((1, 1)))
        self.locks = QueueLocks(link, group="g", settings=ConsumerSettings(), clock=self.clock)
        self.delivering = Delivering(
            self.shares, self.locks, on_room=self._room, on_stale=self._suspend
        )
        self.delivering.open(self._wait)

    def _suspend(self) -> None:
        self.shares.suspend()
        self.locks.lost()

    def _room(self) -> None:
        self.rooms += 1

    def _wait(self) -> None:
        self.waits += 1

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


async def test_a_poll_that_finds_records_does_not_wait_and_one_that_waits_is_announced(
    opened: Opened,
) -> None:
    opened.buffer(0)
    assert await opened.delivering.poll() == [record(0)]
    opened.delivering.ack(A, 0)
    assert opened.waits == 0
    polling = asyncio.create_task(opened.delivering.poll())
    while not opened.waits:
        await asyncio.sleep(0)
    opened.buffer(1)
    assert await polling == [record(1)]
    assert opened.waits == 1


async def test_an_error_is_raised_once_and_before_records(opened: Opened) -> None:
    opened.buffer(0)
    opened.delivering.fail(LookupError("what"))
    with pytest.raises(LookupError):
        await opened.delivering.poll()
    assert await opened.delivering.poll() == [record(0)]


async def test_the_end_reaches_waiting_polls_and_later_ones(opened: Opened) -> None:
    polling = asyncio.create_task(opened.delivering.poll())
    await asyncio.sleep(0)
    opened.delivering.close()
    with pytest.raises(Closed):
        await polling
    with pytest.raises(Closed):
        await opened.delivering.poll()


async def test_an_acknowledgement_that_makes_room_is_announced(opened: Opened) -> None:
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
    assert await opened.delivering.begin(record(0))
    opened.delivering.end(record(0), done=True)
    assert not await opened.delivering.begin(record(0))
    assert opened.rooms == 1


async def test_an_attempt_waits_while_it_is_not_known_whose_the_queue_is(opened: Opened) -> None:
    opened.buffer(0)
    opened.shares.suspend()
    beginning = asyncio.create_task(opened.delivering.begin(record(0)))
    await asyncio.sleep(0)
    opened.delivering.wake()
    await asyncio.sleep(0)
    assert not beginning.done()
    opened.shares.start(A, 0, known=True, committed=0)
    opened.delivering.wake()
    assert await beginning


@pytest.mark.parametrize("end", ["revoked", "overtaken", "closed"])
async def test_an_attempt_that_waited_in_vain_does_not_begin(opened: Opened, end: str) -> None:
    opened.buffer(0)
    opened.shares.suspend()
    beginning = asyncio.create_task(opened.delivering.begin(record(0)))
    await asyncio.sleep(0)
    if end == "revoked":
        opened.shares.assign([])
        opened.delivering.wake()
    elif end == "overtaken":
        opened.shares.start(A, 1, known=True, committed=1)
        opened.delivering.wake()
    else:
        opened.delivering.close()
    assert not await beginning


async def test_no_record_is_begun_or_delivered_while_locks_may_be_lost(opened: Opened) -> None:
    opened.buffer(0)
    opened.locks._epochs[A] = 1
    opened.locks._trusted_until_ms = 100
    opened.clock.time_ms = 99
    assert await opened.delivering.begin(record(0))
    opened.delivering.end(record(0), done=False)
    opened.clock.time_ms = 100
    beginning = asyncio.create_task(opened.delivering.begin(record(0)))
    polling = asyncio.create_task(opened.delivering.poll())
    await asyncio.sleep(0)
    assert not beginning.done()
    assert not polling.done()
    opened.shares.start(A, 0, known=True, committed=0)
    opened.delivering.wake()
    assert await beginning
    assert await polling == [record(0)]


async def test_an_attempt_that_was_begun_is_finished_even_if_the_queue_was_revoked(
    opened: Opened,
) -> None:
    opened.buffer(0)
    await opened.delivering.begin(record(0))
    opened.shares.assign([])
    opened.delivering.ack(A, 0)
    assert opened.shares.to_commit() == {A: 0}
    assert opened.shares.drained() == []
    opened.delivering.end(record(0), done=True)
    assert opened.shares.to_commit() == {A: 1}
    assert opened.shares.drained() == [A]
    assert opened.rooms == 1


async def test_columns_are_polled_and_acknowledged_like_records(opened: Opened) -> None:
    polling = asyncio.create_task(opened.delivering.poll_columns())
    await asyncio.sleep(0)
    assert not polling.done()
    share = opened.shares.get(A)
    assert share is not None
    opened.shares.take_columns(share, *from_records([record(0), record(1)]))
    opened.delivering.wake()
    (run,) = await polling
    assert run.records() == [record(0)]
    opened.delivering.ack_columns(run)
    assert opened.rooms == 1
    assert opened.shares.to_commit() == {A: 1}
    (run,) = await opened.delivering.poll_columns()
    assert run.records() == [record(1)]
    opened.delivering.close()
    with pytest.raises(Closed):
        await opened.delivering.poll_columns()


async def test_a_poll_for_records_beyond_the_limit_gets_them_when_others_are_finished(
    opened: Opened,
) -> None:
    opened.buffer(0)
    opened.buffer(1)
    assert await opened.delivering.poll() == [record(0)]
    polling = asyncio.create_task(opened.delivering.poll())
    await until_waits(opened)
    opened.delivering.ack_all([record(0)])
    assert await polling == [record(1)]


async def until_waits(opened: Opened) -> None:
    while not opened.waits:
        await asyncio.sleep(0)
