import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace_mq.client.consumer import pull_consumer as module
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.fetch.start_offsets import KeptOffset
from headrace_mq.errors import Closed, ConnectionLost, NotLeader, QueueNotFound
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.bodies import CommitOffsets, QueueRanges, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

A, B, OTHER = QueueRef("t", 0), QueueRef("t", 1), QueueRef("other", 0)
COMMIT = RequestCode.COMMIT_OFFSETS
Until = Callable[[Callable[[], object]], Any]
LONG_MS = 30_000


def make(broker: Any, group: str = "", **settings: Any) -> PullConsumer:
    quick = {"reconnect_ms_min": 1, "reconnect_ms_max": 5}
    return PullConsumer(
        broker.address, group=group, settings=ConsumerSettings(**(quick | settings))
    )


@pytest.fixture
async def reader(broker: Any) -> AsyncIterator[PullConsumer]:
    """Reads both queues of topic t, without a group; A holds five records, B two."""
    broker.topics["t"] = 2
    for body in (b"0", b"1", b"2", b"3", b"4"):
        broker.now_ms += 10
        broker.append(A, [body])
    broker.append(B, [b"x", b"y"])
    async with make(broker) as reader:
        await reader.assign([A, B])
        yield reader


def places(records: list[Record]) -> list[tuple[int, int]]:
    return [(record.queue.queue_id, record.offset) for record in records]


async def all_of(reader: PullConsumer, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < count:
        found += places(await reader.fetch(timeout_ms=LONG_MS))
    return sorted(found)


async def test_assigned_queues_are_read_from_their_beginning(
    broker: Any, reader: PullConsumer
) -> None:
    assert reader.assignment == {A, B}
    assert await all_of(reader, 7) == [(0, n) for n in range(5)] + [(1, 0), (1, 1)]
    assert (reader.position(A), reader.position(B)) == (5, 2)
    assert broker.count(RequestCode.JOIN_GROUP) == broker.count(RequestCode.GET_OFFSETS) == 0


async def test_a_fetch_returns_no_more_than_asked_for_and_the_rest_later(
    reader: PullConsumer, until: Until
) -> None:
    await until(lambda: (share := reader._shares.get(A)) and len(share.ready) == 5)
    assert places(await reader.fetch(2, timeout_ms=LONG_MS)) == [(0, 0), (0, 1)]
    assert reader.position(A) == 2
    # The other queue comes first now.
    assert places(await reader.fetch(3, timeout_ms=LONG_MS))[:2] == [(1, 0), (1, 1)]


async def test_a_fetch_without_anything_to_return_ends_with_its_time(
    reader: PullConsumer,
) -> None:
    await all_of(reader, 7)
    assert await reader.fetch(timeout_ms=0) == []
    assert await reader.fetch(timeout_ms=1) == []


async def test_an_assignment_replaces_the_one_before_and_keeps_what_stays(
    broker: Any, reader: PullConsumer
) -> None:
    await all_of(reader, 7)
    await reader.assign([A])
    broker.append(B, [b"not read"])
    broker.append(A, [b"5"])
    assert await all_of(reader, 1) == [(0, 5)]
    await reader.assign([B])
    assert await all_of(reader, 3) == [(1, 0), (1, 1), (1, 2)]
    with pytest.raises(QueueNotFound):
        await reader.assign([A, QueueRef("t", 2)])
    assert reader.assignment == {B}


async def test_seeking_goes_forth_and_back(reader: PullConsumer) -> None:
    await all_of(reader, 7)
    reader.seek(A, 3)
    assert reader.position(A) == 3
    assert await all_of(reader, 2) == [(0, 3), (0, 4)]
    with pytest.raises(ValueError, match="0 or more"):
        reader.seek(A, -1)
    with pytest.raises(ValueError, match="is not assigned"):
        reader.seek(QueueRef("t", 2), 0)


async def test_seeking_to_a_time_goes_on_at_the_first_record_stored_then(
    reader: PullConsumer,
) -> None:
    await all_of(reader, 7)
    await reader.seek_to_time([A], 35)
    assert await all_of(reader, 2) == [(0, 3), (0, 4)]
    await reader.seek_to_time([A, B], 10_000)
    assert (reader.position(A), reader.position(B)) == (5, 2)
    with pytest.raises(ValueError, match="is not assigned"):
        await reader.seek_to_time([QueueRef("u", 0)], 0)


async def test_a_paused_queue_waits_where_it_stands(reader: PullConsumer) -> None:
    reader.pause([A])
    assert await all_of(reader, 2) == [(1, 0), (1, 1)]
    assert reader.position(A) == 0
    reader.resume([A])
    assert await all_of(reader, 5) == [(0, n) for n in range(5)]


@pytest.mark.parametrize(("start", "first"), [("latest", 5), ("earliest", 0), (35, 3)])
async def test_a_pull_consumer_begins_where_the_settings_say(
    broker: Any, reader: PullConsumer, start: Any, first: int
) -> None:
    async with make(broker, start=start) as other:
        await other.assign([A])
        assert other.position(A) == first


async def test_with_a_group_it_begins_where_the_group_stands_and_commits_its_positions(
    broker: Any, reader: PullConsumer
) -> None:
    broker.offsets["g", A] = 3
    async with make(broker, "g") as grouped:
        await grouped.assign([A])
        assert await all_of(grouped, 2) == [(0, 3), (0, 4)]
        await grouped.commit()
        await grouped.commit()
        assert broker.offsets["g", A] == 5
        grouped.seek(A, 1)
        await grouped.commit()
        assert broker.offsets["g", A] == 1
    commits = [decode(CommitOffsets, r.body) for r in broker.seen if r.code == COMMIT]
    assert [commit.member for commit in commits] == ["", ""]


async def test_without_a_group_there_is_nothing_to_commit_to(reader: PullConsumer) -> None:
    with pytest.raises(ValueError, match="without a group"):
        await reader.commit()


async def test_after_a_lost_connection_it_goes_on_where_it_was(
    broker: Any, reader: PullConsumer
) -> None:
    await all_of(reader, 7)
    broker.drop()
    broker.append(A, [b"5"])
    assert await all_of(reader, 1) == [(0, 5)]


@pytest.mark.parametrize(("records_max", "timeout_ms"), [(0, 0), (1, -1)])
async def test_a_fetch_asks_for_something(
    reader: PullConsumer, records_max: int, timeout_ms: int
) -> None:
    with pytest.raises(ValueError, match="at least 1 record"):
        await reader.fetch(records_max, timeout_ms=timeout_ms)


async def test_before_the_start_and_after_the_end_nothing_is_read(broker: Any) -> None:
    reader = make(broker)
    with pytest.raises(Closed):
        await reader.fetch()
    await reader.aclose()
    await broker.stop()
    with pytest.raises(ConnectionLost):
        await make(broker, request_timeout_ms=20).start()


async def test_closing_ends_a_fetch_that_waits(reader: PullConsumer) -> None:
    await all_of(reader, 7)
    waiting = asyncio.create_task(reader.fetch(timeout_ms=LONG_MS))
    await asyncio.sleep(0)
    await reader.aclose()
    with pytest.raises(Closed):
        await waiting


def lose(broker: Any, queue: QueueRef, kept: int, bodies: list[bytes]) -> None:
    """Another broker leads, which has the first batches of a queue and then got others."""
    broker.drop()
    del broker.batches[queue][kept:]
    for body in bodies:
        broker.append(queue, [body])
    broker.epochs, broker.changed[queue] = (3, 2), kept


async def test_after_a_loss_it_reads_the_messages_that_stand_below_its_position_now(
    broker: Any, reader: PullConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    await all_of(reader, 7)
    assert reader.epochs == {A: 1, B: 1}
    # The queue has grown past the position before the connection is there again.
    lose(broker, A, 2, [b"new %d" % n for n in range(6)])
    found: list[Record] = []
    while len(found) < 6:
        found += await reader.fetch(timeout_ms=LONG_MS)
    assert [(one.offset, one.body) for one in found] == [(2 + n, b"new %d" % n) for n in range(6)]
    assert "read again from there" in caplog.text
    assert (reader.position(A), reader.position(B)) == (8, 2)
    assert reader.epochs == {A: 3, B: 3}
    # It is noticed once.
    broker.drop()
    broker.append(A, [b"8"])
    assert await all_of(reader, 1) == [(0, 8)]


async def test_after_a_loss_it_returns_no_lost_message_that_it_had_in_memory(
    broker: Any, reader: PullConsumer, until: Until
) -> None:
    await until(lambda: sum(len(share.ready) for share in reader._shares._shares.values()) == 7)
    lose(broker, A, 1, [b"new"])
    await until(lambda: reader._doubts)
    found: list[Record] = []
    while len(found) < 4:
        found += await reader.fetch(timeout_ms=LONG_MS)
    assert [one.body for one in found if one.queue == A] == [b"0", b"new"]


async def test_a_position_that_was_chosen_during_the_look_is_kept(
    broker: Any, reader: PullConsumer, until: Until
) -> None:
    await all_of(reader, 7)
    broker.held.add(RequestCode.QUEUE_RANGES)
    lose(broker, A, 2, [b"new %d" % n for n in range(6)])
    looked = await broker.next(RequestCode.QUEUE_RANGES)
    reader.seek(A, 6)
    broker.held.clear()
    broker.take(looked)
    assert await all_of(reader, 2) == [(0, 6), (0, 7)]


async def test_positions_that_an_application_keeps_begin_where_messages_have_changed(
    broker: Any, reader: PullConsumer
) -> None:
    lose(broker, A, 2, [b"new %d" % n for n in range(6)])
    async with make(broker) as other:
        kept = {A: KeptOffset(5, epoch=1), B: 1}
        await other.assign([A, B], offsets=kept)
        assert await all_of(other, 7) == [(0, 2 + n) for n in range(6)] + [(1, 1)]
    async with make(broker) as other:
        # Kept in the epoch of the loss, or later; and by who does not know the epoch.
        await other.assign([A, B], offsets={A: KeptOffset(5, epoch=2), B: KeptOffset(1)})
        assert await all_of(other, 4) == [(0, 5), (0, 6), (0, 7), (1, 1)]


async def test_a_topic_that_went_while_the_connection_was_lost_holds_back_no_other(
    broker: Any, reader: PullConsumer, until: Until
) -> None:
    broker.topics["other"] = 1
    await reader.assign([A, B, OTHER])
    await all_of(reader, 7)
    broker.drop()
    del broker.topics["other"]
    broker.append(A, [b"5"])
    assert await all_of(reader, 1) == [(0, 5)]
    await until(lambda: not reader._looking)
    # Its own fetch says what is wrong.
    assert not reader._shares.is_suspended(OTHER)


async def test_a_queue_that_its_topic_has_no_longer_does_not_stand_still(
    broker: Any, reader: PullConsumer, until: Until
) -> None:
    await all_of(reader, 7)
    broker.drop()
    broker.topics["t"] = 1
    await until(lambda: reader._doubts and not reader._looking)
    assert not reader._shares.is_suspended(B)


async def test_a_topic_whose_brokers_are_away_holds_back_no_other(
    broker: Any, reader: PullConsumer, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topics["other"] = 1
    await reader.assign([A, B, OTHER])
    await all_of(reader, 7)
    ranges = broker._queue_ranges

    def of_one_group(request: Any) -> Any:
        if "other" in decode(QueueRanges, request.body).topics:
            raise NotLeader("its group does not answer")
        return ranges(request)

    monkeypatch.setattr(module, "LOOK_PAUSE_MS", 1)
    monkeypatch.setattr(broker, "_queue_ranges", of_one_group)
    broker.drop()
    broker.append(A, [b"5"])
    assert await all_of(reader, 1) == [(0, 5)]
    assert reader._shares.is_suspended(OTHER)
    monkeypatch.setattr(broker, "_queue_ranges", ranges)
    await until(lambda: not reader._looking)
    assert not reader._shares.is_suspended(OTHER)


async def test_a_pull_consumer_tells_an_epoch_when_its_position_is_one_of_it(
    broker: Any, reader: PullConsumer, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    await all_of(reader, 7)
    ended, asked = reader._identities.ended, 0

    async def lost_again(queues: Any) -> Any:
        nonlocal asked
        found = await ended(queues)
        asked += 1
        if asked == 1:
            reader._doubt()
            assert (reader.position(A), reader.epochs[A]) == (5, 1)
        return found

    monkeypatch.setattr(reader._identities, "ended", lost_again)
    lose(broker, A, 2, [b"new %d" % n for n in range(6)])
    await until(lambda: asked and not reader._looking)
    assert asked == 2
    assert (reader.position(A), reader.epochs[A]) == (2, 3)


async def test_a_queue_that_is_assigned_again_after_a_loss_is_not_moved_back_later(
    broker: Any, reader: PullConsumer, until: Until
) -> None:
    await all_of(reader, 7)
    await reader.assign([B])
    lose(broker, A, 2, [b"new %d" % n for n in range(6)])
    await until(lambda: reader._doubts and not reader._looking)
    # Chosen after the loss.
    await reader.assign([A, B], offsets={A: 6})
    assert await all_of(reader, 2) == [(0, 6), (0, 7)]
    broker.drop()
    broker.append(A, [b"8"])
    assert await all_of(reader, 1) == [(0, 8)]


async def test_a_loss_that_is_not_handled_yet_outlasts_another_assignment(
    broker: Any, reader: PullConsumer, until: Until
) -> None:
    await all_of(reader, 7)
    broker.topics["other"] = 1
    reader._identities.changed[A] = 2
    await reader.assign([A, B, OTHER])
    broker.drop()
    await until(lambda: reader._doubts and not reader._looking)
    assert reader.position(A) == 2
