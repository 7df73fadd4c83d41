"""What a broker knows of a message: how far each group is, and what failed."""

from typing import Any

import msgspec
import pytest

from headrace.journey.groups import (
    ASKED_MS,
    add_group,
    add_groups,
    add_message,
    add_steps,
    standing_of,
)
from headrace.journey.hop import Journey
from headrace_mq import AdminClient, Consumer, Message, Producer
from headrace_mq.client.retry_headers import ORIGIN_HEADER, Origin
from headrace_mq.client.trace.trace_events import TRACE_TOPIC, TraceStep, encode_step
from headrace_mq.errors import NotPermitted, QueueFrozen, RequestTimeout
from headrace_mq.message import QueueRef, Record

ORDERS = QueueRef("orders", 0)


@pytest.fixture
async def record(admin: AdminClient) -> Record:
    """The second of three messages of one queue."""
    await admin.create_topic("orders", 1)
    async with Producer(admin.address) as producer:
        await producer.send_many([Message(topic="orders", key="ann", body=b"tea")] * 3)
    found = await admin.message("orders:0:1")
    assert found is not None
    return found


def origin(attempt: int, topic: str = "orders") -> dict[str, str]:
    """The header of a copy of the second message that failed."""
    found = Origin(
        topic=topic, queue_id=0, offset=1, born_at_ms=1, attempt=attempt, reason="KeyError: no tea",
        back_to="orders",
    )  # fmt: skip
    return {ORIGIN_HEADER: msgspec.json.encode(found).decode()}


async def put(admin: AdminClient, topic: str, *messages: Message) -> None:
    if topic not in [one.topic for one in await admin.topics()]:
        await admin.create_topic(topic, 1)
    async with Producer(admin.address) as producer:
        for one in messages:
            await producer.send(one)


async def hops(admin: AdminClient, record: Record) -> list[Any]:
    """Those behind the one that says where the message is stored."""
    journey = Journey()
    await add_groups(admin, journey, record, await add_message(admin, journey, record))
    return journey.hops[2:]


async def test_a_message_has_its_sender_and_its_place(admin, record) -> None:
    journey = Journey()
    await add_message(admin, journey, record, "it was sent twice")
    sent, queued = journey.hops
    assert (sent.step, sent.at_ms, sent.detail) == ("sent", record.born_at_ms, "it was sent twice")
    assert "127.0.0.1" in sent.name
    assert (queued.name, queued.took_ms) == (
        "orders:0:1",
        record.stored_at_ms - record.born_at_ms,
    )


async def test_a_group_is_behind_a_message_or_has_no_consumer_or_is_paused(admin, record) -> None:
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    (stopped,) = await hops(admin, record)
    assert (stopped.name, stopped.state, stopped.cause) == ("kitchen", "stopped", "no consumer")
    await admin.set_group("kitchen", consume=False)
    (paused,) = await hops(admin, record)
    assert (paused.cause, paused.page) == ("group paused", "/group?group=kitchen")
    await admin.set_offsets("kitchen", {ORDERS: 2})
    (done,) = await hops(admin, record)
    assert (done.state, done.cause) == ("done", "")
    unknown = await standing_of(admin, "nobody", record)
    assert unknown["cause"] == "no consumer"


async def test_a_message_waits_its_turn_behind_others(admin, record) -> None:
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    async with Consumer(admin.address, group="kitchen", topics=["orders"]) as consumer:
        await consumer.poll()
        (waits,) = await hops(admin, record)
        assert (waits.state, waits.cause) == ("waits", "waits its turn")
        assert waits.detail.startswith("1 messages of the queue before it are not done")


async def test_a_group_that_others_tell_of_is_left_out(admin, record) -> None:
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    journey = Journey()
    await add_groups(admin, journey, record, 1, {"kitchen"})
    assert journey.hops == []


async def test_a_message_that_failed_is_retried_and_then_a_dead_letter(admin, record) -> None:
    await admin.reset_offsets("kitchen", "latest", topics=["orders"])
    copy = Message(topic="%RETRY%kitchen", key="ann", body=b"tea", headers=origin(1))
    other = Message(topic="%RETRY%kitchen", key="ann", body=b"tea", headers=origin(1, "coffee"))
    await put(admin, "%RETRY%kitchen", copy, other)
    await admin.reset_offsets("kitchen", "earliest", topics=["%RETRY%kitchen"])
    retried, stopped = await hops(admin, record)
    assert (retried.step, retried.name) == ("retried", "%RETRY%kitchen:0:0")
    assert retried.detail == "1 attempts failed, the last one with KeyError: no tea"
    assert (stopped.state, stopped.cause) == ("stopped", "no consumer")
    letter = Message(topic="%DLQ%kitchen", key="ann", body=b"tea", headers=origin(3))
    await put(admin, "%DLQ%kitchen", letter)
    (dead,) = await hops(admin, record)
    assert (dead.step, dead.cause, dead.page) == ("dead letter", "dead letter", "/dead?group=kitchen")  # fmt: skip


async def test_a_letter_without_a_key_is_found_among_the_last_ones(admin, record) -> None:
    await admin.reset_offsets("kitchen", "latest", topics=["orders"])
    letter = Message(topic="%DLQ%kitchen", body=b"tea", headers=origin(3))
    await put(admin, "%DLQ%kitchen", letter)
    journey, plain = Journey(), msgspec.structs.replace(record, key="")
    queued = journey.add(None, "queue", "queued", "orders:0:1")
    await add_group(admin, journey, plain, queued, "kitchen")
    assert [one.cause for one in journey.hops] == ["", "dead letter"]


async def test_a_consumer_that_traces_tells_times_also_of_a_message_that_is_gone(
    admin, record
) -> None:
    await admin.reset_offsets("kitchen", "latest", topics=["orders"])
    told = [
        TraceStep(kind="delivered", at_ms=record.stored_at_ms + 5, group="kitchen", client_id="c"),
        TraceStep(kind="acknowledged", at_ms=record.stored_at_ms + 9, group="kitchen", client_id="c", detail="well"),
    ]  # fmt: skip
    for name in ("orders:0:1", "orders:0:99"):
        await put(admin, TRACE_TOPIC, *(Message(topic=TRACE_TOPIC, key=name, body=encode_step(one)) for one in told))  # fmt: skip
    delivered, acknowledged = await hops(admin, record)
    assert (delivered.took_ms, acknowledged.took_ms) == (5, 4)
    assert acknowledged.detail == "attempt 1: well"
    journey = Journey()
    await add_steps(admin, journey, "orders:0:99")
    assert [(one.step, one.cause) for one in journey.hops] == [
        ("queued", "not kept"),
        ("delivered", ""),
        ("acknowledged", ""),
    ]
    await add_steps(admin, nothing := Journey(), "orders:0:98")
    assert nothing.hops == []


async def test_a_user_who_may_not_see_groups_gets_a_sentence(admin, record, monkeypatch) -> None:
    async def refuse(_: AdminClient) -> None:
        raise NotPermitted("user 'ann' may not read cluster")

    monkeypatch.setattr(AdminClient, "groups", refuse)
    (hop,) = await hops(admin, record)
    assert (hop.state, hop.cause, hop.detail) == ("unknown", "not permitted", "user 'ann' may not read cluster")  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error"),
    [("find", RequestTimeout("no answer within 5000 ms")), ("group", QueueFrozen("it is frozen"))],
)
async def test_a_group_that_cannot_be_looked_at_is_unknown_and_others_are_told(
    admin, record, monkeypatch, call: str, error: Exception
) -> None:
    for name in ("bar", "kitchen"):
        await admin.reset_offsets(name, "latest", topics=["orders"])
    ask = getattr(AdminClient, call)

    async def answer(self: AdminClient, name: str, *given: Any, **more: Any) -> Any:
        if name in ("bar", "%RETRY%bar"):
            raise error
        return await ask(self, name, *given, **more)

    monkeypatch.setattr(AdminClient, call, answer)
    bar, kitchen = await hops(admin, record)
    assert (bar.name, bar.state) == ("bar", "unknown")
    assert bar.detail == f"the broker did not say: {error}"
    assert (kitchen.name, kitchen.state) == ("kitchen", "done")


@pytest.mark.parametrize(
    ("error", "cause"),
    [(RequestTimeout("no answer within 5000 ms"), ""), (NotPermitted("user 'ann' may not"), "not permitted")],
)  # fmt: skip
@pytest.mark.parametrize("call", ["steps", "group"])
async def test_one_group_of_which_the_broker_says_nothing_is_unknown(
    admin, record, monkeypatch, call: str, error: Exception, cause: str
) -> None:
    async def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(AdminClient, call, fail)
    journey = Journey()
    queued = journey.add(None, "queue", "queued", "orders:0:1")
    await add_group(admin, journey, record, queued, "kitchen")
    hop = journey.hops[1]
    assert (hop.name, hop.state, hop.cause) == ("kitchen", "unknown", cause)
    assert str(error) in hop.detail


async def test_groups_of_a_later_message_are_asked_until_the_same_moment(admin, record) -> None:
    await admin.reset_offsets("kitchen", "latest", topics=["orders"])
    journey = Journey()
    queued = journey.add(None, "queue", "queued", "orders:0:1")
    await add_groups(admin, journey, record, queued, until=5.0, clock=lambda: 5.0)
    assert journey.hops[1].detail == "1 groups were not asked: the others took over 10 s"


async def test_groups_that_there_was_no_time_to_ask_are_counted(admin, record) -> None:
    for name in ("bar", "kitchen", "terrace"):
        await admin.reset_offsets(name, "latest", topics=["orders"])
    times, journey = iter([0.0, 1.0, ASKED_MS / 1_000]), Journey()
    queued = journey.add(None, "queue", "queued", "orders:0:1")
    await add_groups(admin, journey, record, queued, clock=lambda: next(times))
    assert [(one.name, one.state) for one in journey.hops[1:]] == [("bar", "done"), ("", "unknown")]
    assert journey.hops[2].detail == "2 groups were not asked: the others took over 10 s"


async def test_a_journey_without_an_answer_of_the_broker_says_so(
    admin, record, monkeypatch
) -> None:
    async def fail(_: AdminClient) -> None:
        raise RequestTimeout("no answer within 5000 ms")

    monkeypatch.setattr(AdminClient, "groups", fail)
    (hop,) = await hops(admin, record)
    assert (hop.state, hop.detail) == ("unknown", "the broker did not say: no answer within 5000 ms")  # fmt: skip
