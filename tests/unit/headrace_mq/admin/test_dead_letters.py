import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace_mq._runtime.clock import SystemClock
from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.dead_letters import LETTERS_MAX, ResendRate, ResendSettings
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.handlers.failures import Failure
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retries.retries import GiveUp, InPlaceRetryPolicy, RetryPolicy
from headrace_mq.client.retry_headers import dead_letter_topic, origin_of, retry_topic
from headrace_mq.errors import InvalidArgument, StoreFull
from headrace_mq.message import Message, QueueRef, Record


async def bury(broker: Broker, *bodies: bytes, park: bool = False) -> None:
    async with Producer(broker.address) as producer:
        policy = InPlaceRetryPolicy(producer, "g") if park else RetryPolicy(producer, "g")
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
        policy = RetryPolicy(producer, "g")
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
    broker: Broker, admin: AdminClient
) -> None:
    two = ResendSettings(per_second=20, together_max=2)
    await bury(broker, b"0", b"1", b"2")
    told: list[int] = []
    sent = await admin.resend_all("g", settings=two, progress=told.append)
    assert ([one.id for one in sent], told) == ([0, 1, 2], [2, 3])
    assert await admin.resend_all("g") == []
    await bury(broker, b"3")
    assert [one.id for one in await admin.resend_all("g")] == [3]
    assert len(await arrivals(broker, retry_topic("g"), 4)) == 4


async def test_letters_say_when_they_were_sent_again(broker: Broker, admin: AdminClient) -> None:
    await bury(broker, *(b"%d" % n for n in range(6)))
    assert [one.resent_at_ms for one in await admin.dead_letters("g")] == [None] * 6
    await admin.resend("g", [1, 4])
    times = [one.resent_at_ms for one in await admin.dead_letters("g")]
    assert [at_ms is not None for at_ms in times] == [False, True, False, False, True, False]
    assert times[1] is not None
    assert times[1] > 1
    assert [one.id for one in await admin.dead_letters("g", unsent=True)] == [0, 2, 3, 5]
    assert [one.id for one in await admin.dead_letters("g", unsent=True, start=3, limit=1)] == [3]
    # By id they are sent whether or not they were.
    await admin.resend("g", [1])
    assert [one.id for one in await admin.resend_all("g")] == [0, 2, 3, 5]
    assert await admin.dead_letters("g", unsent=True) == []


async def test_letters_that_an_older_version_sent_are_not_sent_again(
    broker: Broker, admin: AdminClient
) -> None:
    await bury(broker, b"0", b"1", b"2")
    await admin.set_offsets("%RESENT%g", {QueueRef(dead_letter_topic("g"), 0): 2})
    assert [one.resent_at_ms for one in await admin.dead_letters("g")] == [0, 0, None]
    assert [one.id for one in await admin.resend_all("g")] == [2]


async def test_one_letter_that_cannot_be_sent_holds_up_no_other(
    broker: Broker, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(broker, b"0", b"bad", b"2")
    send = Producer.send

    async def picky(self, message):
        if message.body == b"bad":
            raise InvalidArgument("not this one")
        return await send(self, message)

    one_by_one = ResendSettings(per_second=1_000, together_max=1)
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "send", picky)
        outcomes = {one.id: one.error for one in await admin.resend_all("g", settings=one_by_one)}
    assert outcomes == {0: "", 1: "not this one", 2: ""}
    assert [one.id for one in await admin.resend_all("g")] == [1]


async def test_the_rest_of_the_letters_is_left_when_the_broker_takes_none(
    broker: Broker, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(broker, b"0", b"1", b"2")
    send = Producer.send

    async def full(self, message):
        if message.topic == retry_topic("g"):
            raise StoreFull("no room")
        return await send(self, message)

    one_by_one = ResendSettings(per_second=1_000, together_max=1)
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "send", full)
        outcomes = [one.error for one in await admin.resend_all("g", settings=one_by_one)]
    assert outcomes == ["no room"]
    assert [one.id for one in await admin.resend_all("g")] == [0, 1, 2]


async def test_no_more_are_sent_in_a_second_than_asked(broker: Broker, admin: AdminClient) -> None:
    await bury(broker, *(b"%d" % n for n in range(12)))
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    sent = await admin.resend_all("g", settings=ResendSettings(per_second=40))
    assert len(sent) == 12
    assert loop.time() - begun_s >= 12 / 40 - 0.01


async def test_purged_letters_are_off_the_list_for_good(broker: Broker, admin: AdminClient) -> None:
    await bury(broker, *(b"%d" % n for n in range(6)))
    await admin.resend("g", [0, 1, 5])
    assert await admin.purge("g", ids=[2, 5], dry_run=True) == 2
    assert len(await admin.dead_letters("g")) == 6
    assert await admin.purge("g", ids=[2, 5]) == 2
    assert await admin.purge("g", ids=[2, 3], resent=True) == 0
    assert await admin.purge("g", resent=True) == 2
    assert await admin.purge("g", resent=True) == 0
    assert [one.id for one in await admin.dead_letters("g")] == [3, 4]
    with pytest.raises(InvalidArgument, match="no dead letter 2 on its list"):
        await admin.resend("g", [3, 2])
    assert [one.id for one in await admin.resend_all("g")] == [3, 4]
    await bury(broker, b"new")
    assert [one.id for one in await admin.dead_letters("g")] == [3, 4, 6]


async def test_letters_are_counted_without_those_off_the_list(
    broker: Broker, admin: AdminClient
) -> None:
    assert await admin.count_letters("g") == (0, 0)
    await bury(broker, *(b"%d" % n for n in range(6)))
    await admin.resend("g", [0, 1, 5])
    assert await admin.count_letters("g") == (6, 3)
    await admin.purge("g", ids=[2, 5])
    assert await admin.count_letters("g") == (4, 2)


async def test_letters_are_purged_by_when_they_were_given_up(
    broker: Broker, admin: AdminClient
) -> None:
    await bury(broker, b"0", b"1")
    before_ms = (await admin.dead_letters("g"))[-1].record.stored_at_ms + 1
    while SystemClock().now_ms() < before_ms:
        await asyncio.sleep(0)
    await bury(broker, b"2")
    await admin.resend("g", [0])
    assert await admin.purge("g", before_ms=before_ms, resent=True) == 1
    assert await admin.purge("g", before_ms=before_ms) == 1
    assert [one.id for one in await admin.dead_letters("g")] == [2]


async def test_a_purge_says_which_letters(broker: Broker, admin: AdminClient) -> None:
    with pytest.raises(InvalidArgument, match="name the letters"):
        await admin.purge("g")
    with pytest.raises(InvalidArgument, match="none at all"):
        await admin.purge("g", ids=[0])
    assert await admin.purge("g", resent=True) == 0
    await bury(broker, b"0")
    with pytest.raises(InvalidArgument, match="no dead letter 1"):
        await admin.purge("g", ids=[0, 1])
    assert len(await admin.dead_letters("g")) == 1


async def test_unknown_ids_and_too_many_send_nothing(broker: Broker, admin: AdminClient) -> None:
    await bury(broker, b"0")
    with pytest.raises(InvalidArgument, match="no dead letter 7"):
        await admin.resend("g", [0, 7])
    with pytest.raises(InvalidArgument, match="at a time"):
        await admin.resend("g", range(LETTERS_MAX + 1))
    ranges = await admin.ranges([dead_letter_topic("g")])
    assert [(one.first, one.end) for one in ranges] == [(0, 1)]


@given(
    per_second=st.integers(1, 5_000),
    together=st.integers(1, 200),
    takes_s=st.lists(st.floats(0, 3), min_size=1, max_size=30),
)
def test_at_no_time_there_were_more_than_the_rate_allows(
    per_second: int, together: int, takes_s: list[float]
) -> None:
    settings = ResendSettings(per_second=per_second, together_max=together)
    now_s = begun_s = 50.0
    pace, done = ResendRate(settings, now_s), 0
    assert 1 <= pace.portion <= min(together, max(1, per_second / 10))
    for took_s in takes_s:
        done += pace.portion
        # All that was sent before this portion had its time.
        assert done - pace.portion <= (now_s - begun_s) * per_second + 0.001
        now_s += took_s
        now_s += pace.pause_s(pace.portion, now_s)


@pytest.mark.parametrize("name", ["per_second", "together_max"])
def test_less_than_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        ResendSettings(**{name: 0})
