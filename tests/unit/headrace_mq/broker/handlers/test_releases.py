"""RELEASE_MESSAGES over real connections: who hinders it, which segments go, what a restart keeps."""

import pytest

from headrace_mq.errors import (
    InvalidArgument,
    OffsetOutOfRange,
    QueueNotFound,
    TopicInUse,
    TopicNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    CreateTopic,
    Fetch,
    FetchFrom,
    decode,
    decode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.releases import QueueRelease, ReleaseAnswer, ReleaseMessages

KIB = 1_024
SMALL = {"segment_bytes": 64 * KIB}


async def create(client, topic="t", queues=1, retention="forever"):
    await client.ask(RequestCode.CREATE_TOPIC, CreateTopic(topic, queues, retention))


async def release(client, before, topic="t", *, dry_run=False) -> ReleaseAnswer:
    queues = [QueueRelease(*each) for each in before.items()]
    asked = ReleaseMessages(topic, queues, dry_run)
    return decode(ReleaseAnswer, await client.ask(RequestCode.RELEASE_MESSAGES, asked))


async def refused(client, before, topic="t"):
    asked = ReleaseMessages(topic, [QueueRelease(*each) for each in before])
    return await client.refusal(RequestCode.RELEASE_MESSAGES, asked)


async def commit(client, group, offset) -> None:
    entries = [CommittedOffset("t", 0, offset)]
    await client.ask(RequestCode.COMMIT_OFFSETS, CommitOffsets(group, "", 0, entries))


async def fill(client, batch, count, topic="t"):
    """A segment takes two of these."""
    for _ in range(count):
        await client.produce(batch(topic, 0, bytes(20 * KIB)))


async def test_whole_segments_go_and_a_restart_keeps_where_the_queue_begins(
    start, connect, batch
) -> None:
    broker = await start(stored=SMALL)
    client = await connect(broker)
    await create(client)
    await fill(client, batch, 11)
    looked = await release(client, {0: 7}, dry_run=True)
    assert [(one.first, one.end, one.released) for one in looked.queues] == [(0, 11, 0)]
    done = await release(client, {0: 7})
    (queue,) = done.queues
    assert (queue.first, queue.end, queue.released, done.segments) == (6, 11, 7, 3)
    assert done.bytes == 3 * 64 * KIB
    assert done.holding == ["t"]
    assert (await release(client, {0: 4})).queues == [queue]
    request = Fetch([FetchFrom("t", 0, queue.first)], 1 << 20, 0)
    answer, batches = decode_fetch_answer(await client.ask(RequestCode.FETCH, request))
    assert (answer.queues[0].code, bool(batches)) == (0, True)
    await broker.aclose()
    again = await connect(await start(stored=SMALL))
    assert (await release(again, {}, dry_run=True)).queues == [queue]
    # What was released goes with its segment when that is sealed.
    await fill(again, batch, 3)
    assert (await release(again, {0: 14})).queues[0].first > queue.first


async def test_a_segment_waits_for_every_topic_kept_forever(start, connect, batch) -> None:
    client = await connect(await start(stored=SMALL))
    await create(client)
    await create(client, "u")
    await fill(client, batch, 1, "u")
    await fill(client, batch, 9)
    held = await release(client, {0: 9})
    assert (held.segments, held.queues[0].first, held.holding) == (0, 0, ["u"])
    done = await release(client, {0: 1}, "u")
    assert (done.segments, done.queues[0].first, done.queues[0].end) == (4, 1, 1)


async def test_a_deleted_topic_holds_nothing(start, connect, batch) -> None:
    from headrace_mq.protocol.administration import DeleteQueues, FreezeQueues

    client = await connect(await start(stored=SMALL))
    await create(client)
    await create(client, "u")
    await fill(client, batch, 1, "u")
    await fill(client, batch, 9)
    await client.ask(RequestCode.FREEZE_QUEUES, FreezeQueues("u", [], True, True, frozen=True))
    await client.ask(RequestCode.DELETE_QUEUES, DeleteQueues("u"))
    assert (await release(client, {0: 9})).segments == 4


async def test_a_group_that_is_behind_is_named_and_nothing_is_released(
    start, connect, batch
) -> None:
    client = await connect(await start(stored=SMALL))
    await create(client)
    await fill(client, batch, 9)
    await commit(client, "slow", 4)
    await commit(client, "quick", 9)
    error = await refused(client, [(0, 5)])
    assert isinstance(error, TopicInUse)
    assert "group 'slow' is at offset 4 of t/0, before 5" in str(error)
    assert (await release(client, {}, dry_run=True)).queues[0].released == 0
    assert (await release(client, {0: 4})).queues[0].first == 4
    await commit(client, "slow", 9)
    assert (await release(client, {0: 9})).segments == 2


@pytest.mark.parametrize(
    ("topic", "before", "error"),
    [
        ("no", [(0, 0)], TopicNotFound),
        ("t", [(7, 0)], QueueNotFound),
        ("t", [(0, 2)], OffsetOutOfRange),
        ("t", [(0, -1)], OffsetOutOfRange),
        ("t", [(0, 0), (0, 0)], InvalidArgument),
        ("short", [(0, 0)], InvalidArgument),
    ],
)
async def test_a_release_that_cannot_be_is_refused(client, batch, topic, before, error) -> None:
    await create(client)
    await create(client, "short", retention="transient")
    await client.produce(batch("t", 0, b"a"))
    assert isinstance(await refused(client, before, topic), error)


async def test_offsets_that_do_not_reach_the_disk_release_nothing(
    start, connect, batch, monkeypatch
) -> None:
    broker = await start(stored=SMALL)
    client = await connect(broker)
    await create(client)
    await fill(client, batch, 9)
    offsets = broker._state.offsets

    def fail(settled):
        settled(OSError("no space"))

    monkeypatch.setattr(offsets, "when_durable", fail)
    error = await refused(client, [(0, 9)])
    assert "nothing was released" in str(error)
    assert broker._state.released(QueueRef("t", 0)) == 0
