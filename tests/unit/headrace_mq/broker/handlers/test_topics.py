import pytest

from headrace_mq.broker.handlers.topics import OBSTACLES_MAX, QUEUES_DESCRIBED_MAX
from headrace_mq.errors import (
    InvalidArgument,
    QueueNotFound,
    ResponseCode,
    TopicInUse,
    TopicNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    DeleteQueues,
    DescribeQueues,
    FreezeQueues,
    QueueDeletion,
    QueueDeletions,
    QueueDescription,
    QueuesAnswer,
)
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    Fetch,
    FetchFrom,
    GetOffsets,
    JoinGroup,
    OffsetsAnswer,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    TopicsAnswer,
    decode,
    decode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode


async def freeze(client, topic="t", *queues, writing=True, reading=True, frozen=True):
    asked = FreezeQueues(topic, list(queues), writing, reading, frozen)
    return decode(TopicsAnswer, await client.ask(RequestCode.FREEZE_QUEUES, asked)).topics[0]


async def delete(client, topic="t", keep=0, *, dry_run=False) -> QueueDeletions:
    asked = DeleteQueues(topic, keep, dry_run)
    return decode(QueueDeletions, await client.ask(RequestCode.DELETE_QUEUES, asked))


async def commit(client, group, *offsets) -> None:
    entries = [CommittedOffset("t", *entry) for entry in offsets]
    await client.ask(RequestCode.COMMIT_OFFSETS, CommitOffsets(group, "", 0, entries))


def fetching(offset=0, *, group="", queue_id=0, wait_ms=0) -> Fetch:
    return Fetch([FetchFrom("t", queue_id, offset)], 1 << 20, wait_ms, group)


async def fetch(client, offset=0, **how):
    body = await client.ask(RequestCode.FETCH, fetching(offset, **how))
    return decode_fetch_answer(body)[0].queues


# --- describing -----------------------------------------------------------------------------------


async def test_queues_are_described_with_range_state_and_times(start, connect, clock, batch):
    client = await connect(await start(clock=clock))
    await client.create("t", 2)
    then = clock.now
    await client.produce(batch("t", 1, b"a", b"b"))
    clock.now += 5_000
    await client.produce(batch("t", 1, b"c"))
    await freeze(client, "t", 0, reading=False)
    body = await client.ask(RequestCode.DESCRIBE_QUEUES, DescribeQueues(["t"]))
    assert decode(QueuesAnswer, body).queues == [
        QueueDescription("t", 0, 0, 0, False, True, 0, 0),
        QueueDescription("t", 1, 0, 3, True, True, then, then + 5_000),
    ]


async def test_more_queues_than_one_answer_takes_are_refused_with_a_way_out(client):
    await client.create("t", QUEUES_DESCRIBED_MAX)
    await client.create("u", 1)
    await client.ask(RequestCode.DESCRIBE_QUEUES, DescribeQueues(["t"]))
    refused = await client.refusal(RequestCode.DESCRIBE_QUEUES, DescribeQueues(["t", "u"]))
    assert isinstance(refused, InvalidArgument)


async def test_an_unknown_topic_is_refused_by_each(client):
    for code, body in [
        (RequestCode.DESCRIBE_QUEUES, DescribeQueues(["t"])),
        (RequestCode.FREEZE_QUEUES, FreezeQueues("t", [], True, True, frozen=True)),
        (RequestCode.DELETE_QUEUES, DeleteQueues("t")),
    ]:
        assert isinstance(await client.refusal(code, body), TopicNotFound)


# --- freezing -------------------------------------------------------------------------------------


async def test_a_queue_frozen_for_writing_refuses_its_batch_alone(client, batch):
    await client.create("t", 2)
    frozen = await freeze(client, "t", 0, reading=False)
    assert (frozen.unwritable, frozen.unreadable) == ([0], [])
    first, second = (await client.produce(batch("t", 0), batch("t", 1))).results
    assert (first.code, second.code) == (ResponseCode.QUEUE_FROZEN, ResponseCode.OK)
    assert "another queue" in first.sentence
    await freeze(client, "t", 0, frozen=False)
    assert (await client.produce(batch("t", 0))).results[0].code == ResponseCode.OK


async def test_a_group_waits_at_a_queue_frozen_for_reading_until_it_is_thawed(
    broker, client, batch, until
):
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    await freeze(client, "t", writing=False)
    waiting = client.send(RequestCode.FETCH, fetching(group="g", wait_ms=60_000))
    await client.produce(batch("t", 0, b"b"))
    assert len(broker._state.long_poll) == 1
    assert waiting not in client.answers
    await freeze(client, "t", frozen=False)
    answer, _ = decode_fetch_answer((await client.answer(waiting)).body)
    assert [queue.end for queue in answer.queues] == [2]


async def test_a_reader_without_a_group_learns_that_the_queue_is_frozen(client, batch):
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    await freeze(client, "t", writing=False)
    (state,) = await fetch(client)
    assert (state.code, state.end) == (ResponseCode.QUEUE_FROZEN, 1)
    assert "thaw" in state.sentence


async def test_only_queues_that_exist_are_frozen(client):
    await client.create("t", 1)
    asked = FreezeQueues("t", [1], True, True, frozen=True)
    assert isinstance(await client.refusal(RequestCode.FREEZE_QUEUES, asked), QueueNotFound)


# --- deleting -------------------------------------------------------------------------------------


async def test_a_dry_run_names_what_hinders_and_changes_nothing(client, batch):
    await client.create("t", 2)
    await client.produce(batch("t", 1, b"a", b"b", b"c"))
    await commit(client, "slow", (1, 1))
    await commit(client, "done", (1, 3))
    doomed = await delete(client, keep=1, dry_run=True)
    assert doomed == QueueDeletions(
        deleted=False,
        queues=[
            QueueDeletion(
                "t", 1, 0, 3,
                [
                    "takes messages: freeze it for writing",
                    "gives messages: freeze it for reading once it is consumed",
                    "has 2 messages that group 'slow' has not consumed",
                ],
            )
        ],
    )  # fmt: skip
    refused = await client.refusal(RequestCode.DELETE_QUEUES, DeleteQueues("t", 1))
    assert isinstance(refused, TopicInUse)
    assert "t/1 takes messages" in str(refused)
    assert await client.ask(RequestCode.DESCRIBE_QUEUES, DescribeQueues(["t"]))


async def test_a_group_at_work_that_committed_nothing_hinders(client, batch):
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    await client.ask(RequestCode.JOIN_GROUP, JoinGroup("g", "m", ["t"]))
    await freeze(client)
    (doomed,) = (await delete(client, dry_run=True)).queues
    assert doomed.obstacles == ["has 1 messages that group 'g' has not consumed"]


async def test_the_reasons_in_an_answer_are_limited(client, batch):
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    for number in range(OBSTACLES_MAX + 3):
        await commit(client, f"g{number}", (0, 0))
    await freeze(client)
    (doomed,) = (await delete(client, dry_run=True)).queues
    assert len(doomed.obstacles) == OBSTACLES_MAX
    assert doomed.obstacles[-1] == "and 4 more reasons"


async def test_a_deleted_topic_is_gone_with_its_offsets_and_its_waiting_fetches_are_answered(
    broker, client, batch
):
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    await commit(client, "g", (0, 1))
    waiting = client.send(RequestCode.FETCH, fetching(1, group="g", wait_ms=60_000))
    await freeze(client)
    assert (await delete(client)).deleted
    answer, _ = decode_fetch_answer((await client.answer(waiting)).body)
    assert [queue.code for queue in answer.queues] == [ResponseCode.QUEUE_NOT_FOUND]
    assert isinstance(
        await client.refusal(RequestCode.QUEUE_RANGES, QueueRanges(["t"])), TopicNotFound
    )
    await client.create("t", 1)
    offsets = decode(
        OffsetsAnswer, await client.ask(RequestCode.GET_OFFSETS, GetOffsets("g", ["t"]))
    )
    assert offsets.offsets == [CommittedOffset("t", 0, -1)]


async def test_a_new_topic_of_the_name_shows_nothing_of_the_old_one_even_after_restarts(
    start, connect, batch
):
    broker = await start()
    client = await connect(broker)
    await client.create("t", 2)
    await client.produce(batch("t", 0, b"old", b"old"))
    await freeze(client)
    await delete(client)
    await broker.aclose()

    broker = await start()
    client = await connect(broker)
    assert "t" not in broker._state.topics
    await client.create("t", 1)
    ranges = decode(
        QueueRangesAnswer, await client.ask(RequestCode.QUEUE_RANGES, QueueRanges(["t"]))
    )
    assert ranges.ranges == [QueueRange("t", 0, 2, 2, start=2, epoch=broker._state.epoch)]
    (below,) = await fetch(client, 0)
    assert (below.code, below.first) == (ResponseCode.OFFSET_OUT_OF_RANGE, 2)
    assert (await client.produce(batch("t", 0, b"new"))).results[0].base_offset == 2
    await broker.aclose()

    client = await connect(await start())
    (state,) = await fetch(client, 2)
    assert (state.code, state.first, state.end) == (ResponseCode.OK, 2, 3)


async def test_deleted_messages_no_longer_hold_their_segments(client, broker, batch):
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    queue = QueueRef("t", 0)
    await commit(client, "g", (0, 1))
    assert broker._state.consumed(queue) == 1
    await commit(client, "g", (0, 0))
    assert broker._state.consumed(queue) == 0
    await commit(client, "g", (0, 1))
    await freeze(client)
    await delete(client)
    assert broker._state.consumed(queue) == 1


async def test_a_message_on_its_way_to_the_disk_is_waited_for_and_counts(client, batch):
    await client.create("t", 1)
    await commit(client, "g", (0, 0))
    # All three arrive in one read: the batch is staged, and not yet visible, when it is judged.
    produced = client.send(RequestCode.PRODUCE, batch("t", 0, b"a"))
    frozen = client.send(RequestCode.FREEZE_QUEUES, FreezeQueues("t", [], True, True, frozen=True))
    deleted = client.send(RequestCode.DELETE_QUEUES, DeleteQueues("t"))
    assert (await client.answer(produced)).code == ResponseCode.OK
    assert (await client.answer(frozen)).code == ResponseCode.OK
    assert (await client.answer(deleted)).code == ResponseCode.TOPIC_IN_USE


@pytest.mark.parametrize("keep", [-1, 2, 3])
async def test_only_a_number_of_queues_that_are_there_can_stay(client, keep: int):
    await client.create("t", 2)
    refused = await client.refusal(RequestCode.DELETE_QUEUES, DeleteQueues("t", keep))
    assert isinstance(refused, InvalidArgument)


async def test_a_broken_store_deletes_nothing(client, broker, monkeypatch):
    await client.create("t", 1)
    await freeze(client)
    monkeypatch.setattr(broker._state.store._flusher, "read_only", "the disk failed, restart")
    refused = await client.refusal(RequestCode.DELETE_QUEUES, DeleteQueues("t"))
    assert refused.code == ResponseCode.STORE_READ_ONLY
    assert "t" in broker._state.topics
