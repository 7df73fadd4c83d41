"""The traffic of topics: of the first ones apart, of the others together."""

from headrace_mq.broker.metrics.topics import TopicFigures
from headrace_mq.broker.quotas.traffic import Meters
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import NO_TRAFFIC, DeleteQueues, FreezeQueues
from headrace_mq.protocol.codes import RequestCode


async def test_traffic_is_counted_by_topic(broker, client, batch, read) -> None:
    await client.create("a", 2)
    await client.produce(batch("a", 0, b"1", b"2"), batch("a", 1, b"3"), batch("b", 0, b"4"))
    broker.state.note_fetched("g", QueueRef("a", 0), 2, 50)
    found = read(TopicFigures(10).samples(broker.state))
    assert found["messages_in_total", "a"] == 3
    assert found["messages_in_total", "b"] == 1
    assert found["bytes_in_total", "a"] > found["bytes_in_total", "b"] > 0
    assert found["messages_out_total", "a"] == 2
    assert found["bytes_out_total", "a"] == 50
    assert found["messages_out_total", "b"] == found["messages_in_total", "other"] == 0
    assert found["metrics_summed", "topics"] == 0


def test_a_replica_counts_what_it_gave_readers(read) -> None:
    fetched: Meters[QueueRef] = Meters(name_of=lambda queue: queue.topic)
    figures = TopicFigures(1)
    for topic in ("a", "b"):
        fetched.add(QueueRef(topic, 0), 0, 2, 50)
    found = read(figures.reads(fetched))
    assert (found["messages_out_total", "a"], found["bytes_out_total", "a"]) == (2, 50)
    assert (found["messages_out_total", "other"], found["metrics_summed", "topics"]) == (2, 1)
    assert not any(name == "messages_in_total" for name, *_ in found)


async def test_topics_above_the_limit_are_added_up(broker, client, batch, read) -> None:
    for topic in ("%RETRY%g", "a", "b", "c"):
        await client.create(topic)
        await client.produce(batch(topic, 0, b"1"))
    found = read(TopicFigures(2).samples(broker.state))
    assert {labels[0] for name, *labels in found if name == "messages_in_total"} == {
        "a",
        "b",
        "other",
    }
    assert found["messages_in_total", "other"] == 2
    assert found["metrics_summed", "topics"] == 2
    assert read(TopicFigures(0).samples(broker.state))["messages_in_total", "other"] == 4


async def test_traffic_counts_on_after_a_topic_was_idle(broker, client, batch, read) -> None:
    figures = TopicFigures(10)
    await client.produce(batch("a", 0, b"1"))
    before = read(figures.samples(broker.state))
    broker.state.forget_idle(broker.state.clock.monotonic_ms() + 60_000)
    assert len(broker.state.produced) == 0
    assert read(figures.samples(broker.state)) == before


async def test_a_deleted_topic_has_no_series_and_raises_no_others(
    broker, client, batch, read
) -> None:
    figures = TopicFigures(10)
    await client.produce(batch("a", 0, b"1"))
    read(figures.samples(broker.state))
    broker.state.topics.delete("a", 0, {})
    found = read(figures.samples(broker.state))
    assert ("messages_in_total", "a") not in found
    assert found["messages_in_total", "other"] == 0


async def test_a_deleted_topic_gives_its_series_to_the_next_new_one(
    broker, client, batch, read
) -> None:
    figures = TopicFigures(1)
    others = 0
    await client.produce(batch("shared", 0, b"1"))
    for number in range(3):
        topic = f"a{number}"
        await client.produce(batch(topic, 0, b"1"))
        found = read(figures.samples(broker.state))
        others, before = found["messages_in_total", "other"], others
        assert others >= before
        broker.state.topics.delete(topic, 0, {})
    assert (found["messages_in_total", "a2"], found["metrics_summed", "topics"]) == (1, 1)


async def test_a_topic_that_is_deleted_and_made_again_begins_at_0(
    broker, client, batch, read
) -> None:
    figures, state = TopicFigures(1), broker.state
    await client.create("a", 2)
    await client.produce(batch("a", 0, b"1", b"2"), batch("a", 1, b"3"), batch("b", 0, b"4"))
    state.note_fetched("g", QueueRef("a", 0), 2, 50)
    read(figures.samples(state))
    await client.ask(RequestCode.FREEZE_QUEUES, FreezeQueues("a", [], True, True, True))
    await client.ask(RequestCode.DELETE_QUEUES, DeleteQueues("a"))
    now_ms = state.clock.monotonic_ms() + 1_000
    assert list(state.produced.by_name()) == ["b"]
    assert state.fetched.read(QueueRef("a", 0), now_ms) == NO_TRAFFIC
    assert state.fetched_by.read(("g", QueueRef("a", 0)), now_ms) == NO_TRAFFIC
    await client.create("a")
    found = read(figures.samples(state))
    assert found["messages_in_total", "a"] == found["messages_out_total", "a"] == 0
    # It raises no others, and takes nothing from them.
    assert found["messages_in_total", "other"] == 1
    await client.produce(batch("a", 0, b"5"), batch("b", 0, b"6"))
    found = read(figures.samples(state))
    assert found["messages_in_total", "a"] == 1
    assert found["messages_in_total", "other"] == 2


async def test_a_count_that_comes_after_its_topic_was_deleted_is_dropped(broker, client) -> None:
    state = broker.state
    await client.create("a")
    state.topics.delete("a", 0, {})
    state.note_fetched("g", QueueRef("a", 0), 2, 50)
    state.forget_idle(state.clock.monotonic_ms())
    assert state.fetched.by_name() == {}


async def test_dead_letters_are_counted(broker, client, batch, read) -> None:
    await client.create("%DLQ%g", 1, "forever")
    await client.produce(batch("%DLQ%g", 0, b"1", b"2"))
    found = read(TopicFigures(10).samples(broker.state))
    assert found["dead_letters_total", "%DLQ%g"] == 2
    assert found["dead_letters_total", "other"] == 0


async def test_dead_letters_of_topics_above_the_limit_are_added_up(
    broker, client, batch, read
) -> None:
    for group, letters in (("g", [b"1", b"2"]), ("h", [b"3"])):
        await client.create(f"%DLQ%{group}", 1, "forever")
        await client.produce(batch(f"%DLQ%{group}", 0, *letters))
    figures = TopicFigures(0)
    found = read(figures.samples(broker.state))
    assert found["dead_letters_total", "other"] == 3
    assert ("dead_letters_total", "%DLQ%g") not in found
    broker.state.topics.delete("%DLQ%g", 0, {})
    assert read(figures.samples(broker.state))["dead_letters_total", "other"] == 3
    await client.produce(batch("%DLQ%h", 0, b"4"))
    assert read(figures.samples(broker.state))["dead_letters_total", "other"] == 4
