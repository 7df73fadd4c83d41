"""What a user of transactional messages sees, with a real broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.transactions.checks import Decision, Undecided
from headrace_mq.client.transactions.transactional_producer import (
    Transaction,
    TransactionalProducer,
)
from headrace_mq.errors import Closed, ConnectionLost, DecidedOtherwise, TopicNotFound
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import (
    BrokerSettings,
    ProducerSettings,
    StoreSettings,
    TransactionSettings,
)

T = QueueRef("t", 0)
ONE = Message(topic="t", key="k", tag="x", headers={"h": "1"}, body=b"1")


async def commit(_: Transaction) -> Decision:
    return Decision.COMMIT


async def rollback(_: Transaction) -> Decision:
    return Decision.ROLLBACK


async def unknown(_: Undecided) -> Decision:
    return Decision.UNKNOWN


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path / "store", segment_bytes=1 << 20)
    made = Broker(
        BrokerSettings(
            store=store,
            port=0,
            default_queues=1,
            transaction_timeout_ms=1,
            transaction_check_ms=1,
            # However slow the test is, nothing is given up.
            transaction_checks_max=1_000_000_000,
        )
    )
    await made.start()
    yield made
    await made.aclose()


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[TransactionalProducer]:
    async with TransactionalProducer(broker.address, group="g", checker=unknown) as made:
        yield made


async def read(broker: Broker, *topics: str) -> list[Record]:
    """Everything that can be seen in the topics."""
    found: list[Record] = []
    async with AdminClient(broker.address) as admin, PullConsumer(broker.address) as reader:
        ranges = await admin.ranges(list(topics or ("t",)))
        await reader.assign([QueueRef(one.topic, one.queue_id) for one in ranges])
        while len(found) < sum(one.end - one.first for one in ranges):
            found += await reader.fetch(timeout_ms=20_000)
    return found


async def test_a_committed_message_arrives_as_it_was_sent(
    broker: Broker, producer: TransactionalProducer
) -> None:
    assert await producer.send_in_transaction(ONE, commit) is Decision.COMMIT
    (record,) = await read(broker)
    assert (record.key, record.tag, record.headers, record.body) == ("k", "x", {"h": "1"}, b"1")


async def test_a_message_is_invisible_before_its_commit_and_after_a_rollback(
    broker: Broker, producer: TransactionalProducer
) -> None:
    seen: list[int] = []

    async def look(_: Transaction) -> Decision:
        seen.append(len(await read(broker)))
        return Decision.ROLLBACK

    assert await producer.send_in_transaction(ONE, look) is Decision.ROLLBACK
    assert (seen, await read(broker)) == ([0], [])
    async with AdminClient(broker.address) as admin:
        assert await admin.find("t", "k") == []


async def test_the_messages_of_a_transaction_are_visible_all_at_once(
    broker: Broker, producer: TransactionalProducer
) -> None:
    messages = [Message(topic=topic, body=b"x") for topic in ("t", "u", "t")]
    await producer.send_in_transaction(messages, commit)
    assert len(await read(broker, "t", "u")) == 3


async def test_many_transactions_at_once_each_have_their_own_outcome(
    broker: Broker, producer: TransactionalProducer
) -> None:
    decisions = await asyncio.gather(
        *(
            producer.send_in_transaction(
                Message(topic="t", body=b"%d" % n), commit if n % 3 else rollback
            )
            for n in range(300)
        )
    )
    assert decisions.count(Decision.ROLLBACK) == 100
    assert sorted(int(r.body) for r in await read(broker)) == [n for n in range(300) if n % 3]


async def test_a_transaction_in_hand_is_committed_or_rolled_back_once_however_often_it_is_said(
    broker: Broker, producer: TransactionalProducer
) -> None:
    first = await producer.begin(ONE, transaction_id="order-1")
    second = await producer.begin(ONE)
    assert first.id == "order-1"
    await first.commit()
    await first.commit()
    await second.rollback()
    with pytest.raises(DecidedOtherwise, match="rolled back"):
        await second.commit()
    assert len(await read(broker)) == 1


async def test_the_checker_is_asked_when_the_work_fails_and_its_answer_holds(
    broker: Broker,
) -> None:
    asked = asyncio.Event()
    producer = TransactionalProducer(broker.address, group="g")

    @producer.checker
    async def checker(undecided: Undecided) -> Decision:
        assert undecided.id == "order-1"
        asked.set()
        return Decision.COMMIT

    async def fail(_: Transaction) -> Decision:
        raise KeyError("the database went away, perhaps after its commit")

    async with producer:
        with pytest.raises(KeyError):
            await producer.send_in_transaction(ONE, fail, transaction_id="order-1")
        await asked.wait()
        while not await read(broker):
            await asyncio.sleep(0)
    assert len(await read(broker)) == 1


async def test_another_producer_of_the_group_answers_for_one_that_is_gone(broker: Broker) -> None:
    async with TransactionalProducer(broker.address, group="g", checker=unknown) as first:
        await first.begin(ONE, transaction_id="order-1")
        await first.begin(ONE, transaction_id="order-2")

    async def checker(undecided: Undecided) -> Decision:
        return Decision.COMMIT if undecided.id == "order-1" else Decision.ROLLBACK

    async with (
        TransactionalProducer(broker.address, group="g", checker=checker),
        AdminClient(broker.address) as admin,
    ):
        while (await admin.transactions()).undecided:
            await asyncio.sleep(0)
    assert len(await read(broker)) == 1


async def test_a_producer_needs_a_checker_and_a_fair_name(broker: Broker) -> None:
    with pytest.raises(ValueError, match="needs a checker"):
        await TransactionalProducer(broker.address, group="g").start()
    with pytest.raises(ValueError, match="group"):
        TransactionalProducer(broker.address, group="")


async def test_a_transaction_that_cannot_be_sent_is_refused_before_the_work_begins(
    producer: TransactionalProducer,
) -> None:
    began: list[Transaction] = []

    async def begin(transaction: Transaction) -> Decision:
        began.append(transaction)
        return Decision.COMMIT

    big = Message(topic="t", body=bytes(3 << 20))
    refused: list[Any] = [
        [],
        Message(topic="%TRANSACTION%", body=b""),
        Message(topic="%SCHEDULE%", body=b""),
        Message(topic="bad name", body=b""),
        [big, big],
    ]
    for messages in refused:
        with pytest.raises(ValueError, match=r"."):
            await producer.send_in_transaction(messages, begin)
    with pytest.raises(ValueError, match="at most 255"):
        await producer.begin(ONE, transaction_id="x" * 256)
    with pytest.raises(ValueError, match="at most 255"):
        await producer.begin(ONE, transaction_id="ü" * 128)
    assert began == []


async def test_an_id_is_used_for_one_transaction_at_a_time(producer: TransactionalProducer) -> None:
    first = await producer.begin(ONE, transaction_id="a")
    with pytest.raises(ValueError, match="under way"):
        await producer.begin(ONE, transaction_id="a")
    await first.rollback()
    await (await producer.begin(ONE, transaction_id="a")).rollback()


async def test_without_a_topic_or_when_closed_nothing_is_sent(tmp_path: Path) -> None:
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0, auto_create_topics=False))
    await broker.start()
    producer = TransactionalProducer(broker.address, group="g", checker=unknown)
    with pytest.raises(Closed):
        await producer.begin(ONE)
    async with producer:
        with pytest.raises(TopicNotFound):
            await producer.begin(ONE)
    with pytest.raises(Closed):
        await producer.begin(ONE)
    await producer.aclose()
    await broker.aclose()
    away = TransactionalProducer(
        broker.address, group="g", checker=unknown, settings=ProducerSettings(send_timeout_ms=1)
    )
    with pytest.raises(ConnectionLost):
        await away.start()


async def test_an_id_is_used_once_also_while_a_topic_is_looked_up(
    broker: Broker, producer: TransactionalProducer
) -> None:
    refused = asyncio.Event()

    async def wait(_: Transaction) -> Decision:
        await refused.wait()
        return Decision.COMMIT

    async def send() -> Decision | None:
        message = Message(topic="new", body=b"x")
        try:
            return await producer.send_in_transaction(message, wait, transaction_id="a")
        except ValueError:
            refused.set()
            return None

    assert set(await asyncio.gather(send(), send())) == {Decision.COMMIT, None}
    assert len(await read(broker, "new")) == 1


async def test_a_small_buffer_holds_no_transaction_up(broker: Broker) -> None:
    settings = ProducerSettings(buffer_bytes_max=1)
    limits = TransactionSettings(bundle_transactions_max=1)
    async with TransactionalProducer(
        broker.address, group="g", checker=unknown, settings=settings, transactions=limits
    ) as producer:
        await asyncio.gather(*(producer.send_in_transaction(ONE, commit) for _ in range(20)))
    assert len(await read(broker)) == 20


async def test_compressed_messages_arrive_too(broker: Broker) -> None:
    settings = ProducerSettings(codec="lz4")
    async with TransactionalProducer(
        broker.address, group="g", checker=unknown, settings=settings
    ) as producer:
        sent = [
            producer.send_in_transaction(Message(topic="t", body=b"x" * 500), decide)
            for decide in (commit, rollback, commit)
        ]
        await asyncio.gather(*sent)
    assert [record.body for record in await read(broker)] == [b"x" * 500] * 2
