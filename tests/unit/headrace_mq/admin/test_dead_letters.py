import pytest
from msgspec.structs import replace

from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.dead_letters import LETTERS_MAX
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer import Consumer
from headrace_mq.client.failures import Failure
from headrace_mq.client.origins import dead_letter_topic, origin_of, retry_topic
from headrace_mq.client.producer import Producer
from headrace_mq.client.retrying import GiveUp, Parking, Retrying
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import Message, QueueRef, Record


async def bury(broker: Broker, *bodies: bytes, park: bool = False) -> None:
    async with Producer(broker.address) as producer:
        policy = Parking(producer, "g") if park else Retrying(producer, "g")
        for number, body in enumerate(bodies):
            record = Record(
                queue=QueueRef("t", 0), offset=number, key="k", tag="", headers={"a": "b"},
                body=body, born_at_ms=1, stored_at_ms=2,
            )  # fmt: skip
            await policy.decide(Failure(record, GiveUp("never"), 1))


async def arrivals(broker: Broker, topic: str, count: int) -> list[Record]:
    async with Consumer(broker.address, group="reader", topics=[topic]) as reader:
        found: list[Record] = []
        while len(found) < count:
            found += await reader.poll()
        return found


async def test_a_group_without_dead_letters_has_none(admin: AdminClient) -> None:
    assert await admin.dead_letters("g") == []
    assert await admin.resend_all("g") == []
    with pytest.raises(InvalidArgument, match="no dead letter 0"):
        await admin.resend("g", [0])


async def test_letters_are_listed_with_their_origin_in_pages(
    broker: Broker, admin: AdminClient
) -> None:
    await bury(broker, *(b"%d" % n for n in range(5)))
    letters = await admin.dead_letters("g", limit=2)
    assert [(one.id, one.record.body) for one in letters] == [(0, b"0"), (1, b"1")]
    origin = letters[1].origin
    assert origin is not None
    assert (origin.topic, origin.offset, origin.reason) == ("t", 1, "GiveUp: never")
    assert [one.id for one in await admin.dead_letters("g", start=3)] == [3, 4]
    for limit in (0, LETTERS_MAX + 1):
        with pytest.raises(InvalidArgument, match="limit"):
            await admin.dead_letters("g", limit=limit)


async def test_a_selection_is_sent_to_the_retry_topic_as_if_it_had_never_failed(
    broker: Broker, admin: AdminClient
) -> None:
    await bury(broker, b"0", b"1", b"2")
    resent = await admin.resend("g", [2, 0, 2])
    assert [(one.id, one.error) for one in resent] == [(2, ""), (0, "")]
    back = await arrivals(broker, retry_topic("g"), 2)
    assert {record.body for record in back} == {b"0", b"2"}
    for record in back:
        origin = origin_of(record)
        assert origin is not None
        assert (origin.attempt, record.headers["a"], record.key) == (0, "b", "k")


async def test_a_letter_that_only_refers_is_sent_again_as_it_stands_at_its_origin(
    broker: Broker, admin: AdminClient
) -> None:
    headers = {f"h{n}": "x" for n in range(64)}
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", 1)
        await producer.send(Message(topic="t", key="k", tag="x", body=b"whole", headers=headers))
        (record,) = await arrivals(broker, "t", 1)
        policy = Retrying(producer, "g")
        await policy.decide(Failure(record, GiveUp("never"), 1))
        gone = replace(record, offset=99)
        await policy.decide(Failure(gone, GiveUp("never"), 1))
    (letter, _) = await admin.dead_letters("g")
    assert letter.origin is not None
    assert letter.origin.apart
    there, missing = await admin.resend_all("g")
    assert there.sent is not None
    assert "is no longer there" in missing.error or "99" in missing.error
    async with Consumer(broker.address, group="again", topics=["t"]) as reader:
        found: list[Record] = []
        while len(found) < 2:
            found += await reader.poll()
    assert [(one.body, one.key, one.tag, dict(one.headers)) for one in found] == [
        (b"whole", "k", "x", headers)
    ] * 2


async def test_a_parked_record_goes_back_to_its_own_topic_without_a_trace(
    broker: Broker, admin: AdminClient
) -> None:
    await bury(broker, b"0", park=True)
    await admin.resend("g", [0])
    (record,) = await arrivals(broker, "t", 1)
    assert (record.body, record.key, dict(record.headers)) == (b"0", "k", {"a": "b"})


async def test_all_are_sent_once_however_often_it_is_asked(
    broker: Broker, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_mq.admin.dead_letters.LETTERS_MAX", 2)
    await bury(broker, b"0", b"1", b"2")
    assert [one.id for one in await admin.resend_all("g")] == [0, 1, 2]
    assert await admin.resend_all("g") == []
    await bury(broker, b"3")
    assert [one.id for one in await admin.resend_all("g")] == [3]
    assert len(await arrivals(broker, retry_topic("g"), 4)) == 4


async def test_all_stops_at_the_first_that_fails_and_goes_on_from_there(
    broker: Broker, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(broker, b"0", b"bad", b"2")
    send = Producer.send

    async def picky(self, message):
        if message.body == b"bad":
            raise InvalidArgument("not this one")
        return await send(self, message)

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "send", picky)
        outcomes = {one.id: one.error for one in await admin.resend_all("g")}
    assert outcomes == {0: "", 1: "not this one", 2: ""}
    assert [one.id for one in await admin.resend_all("g")] == [1, 2]


async def test_unknown_ids_and_too_many_send_nothing(broker: Broker, admin: AdminClient) -> None:
    await bury(broker, b"0")
    with pytest.raises(InvalidArgument, match="no dead letter 7"):
        await admin.resend("g", [0, 7])
    with pytest.raises(InvalidArgument, match="at a time"):
        await admin.resend("g", range(LETTERS_MAX + 1))
    ranges = await admin.ranges([dead_letter_topic("g")])
    assert [(one.first, one.end) for one in ranges] == [(0, 1)]
