"""One thing is followed at a time, and a message without an application through the groups of its topic."""

import msgspec
import pytest

from headrace.journey.trace import TraceTarget, first_message, nothing_found, trace_message
from headrace_mq import Message, Producer
from headrace_mq.client.retry_headers import ORIGIN_HEADER, Origin


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"message_id": "t:0:0", "command_id": "c"},
        {"version": 3},
        {"aggregate_id": "ann"},
        {"command_id": "c", "version": 1, "aggregate_id": "ann"},
    ],
)
def test_more_or_less_than_one_thing_is_refused(fields) -> None:
    with pytest.raises(ValueError, match="name one thing to follow"):
        TraceTarget(**fields)


def test_a_message_a_command_or_a_version_may_be_wanted() -> None:
    assert TraceTarget(message_id="t:0:0").version == 0
    assert TraceTarget(command_id="c", aggregate_id="ann").message_id == ""
    assert TraceTarget(aggregate_id="ann", version=2).command_id == ""


async def test_a_message_is_followed_to_its_groups(admin) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(admin.address) as producer:
        await producer.send(Message(topic="orders", body=b"tea", key="ann"))
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    found = await trace_message(admin, "orders:0:0")
    assert found.plain["stands"] == [3]
    assert [one["step"] for one in found.plain["hops"]] == ["sent", "queued", "read"]
    assert (found.plain["id"], found.plain["command"]) == ("orders:0:0", None)
    gone = await trace_message(admin, "orders:0:7")
    assert (gone.record, gone.missing) == (None, "there is no message orders:0:7, and no trace of it")  # fmt: skip
    with pytest.raises(ValueError, match="orders:3:1042"):
        await trace_message(admin, "seven")


async def test_a_copy_that_failed_leads_to_the_message_that_it_was(admin) -> None:
    for topic in ("orders", "%DLQ%kitchen"):
        await admin.create_topic(topic, 1)
    origin = Origin(topic="orders", queue_id=0, offset=0, born_at_ms=1, attempt=3, reason="no", back_to="orders")  # fmt: skip
    headers = {ORIGIN_HEADER: msgspec.json.encode(origin).decode()}
    async with Producer(admin.address) as producer:
        await producer.send(Message(topic="orders", body=b"tea", key="ann"))
        await producer.send(Message(topic="%DLQ%kitchen", body=b"tea", key="ann", headers=headers))
    first = await first_message(admin, "%DLQ%kitchen:0:0")
    assert first is not None
    assert first.queue.topic == "orders"
    assert (await trace_message(admin, "%DLQ%kitchen:0:0")).message_id == "orders:0:0"


def test_a_trace_without_hops_says_why() -> None:
    assert nothing_found("it was not sent").plain["missing"] == "it was not sent"
