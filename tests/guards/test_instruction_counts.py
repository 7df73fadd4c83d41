"""
Hot paths do not grow: what each makes the interpreter execute, counted and not timed.

The same on every machine and under any load. A cost is a ratio to a yardstick that is counted in
the same way, since versions of Python compile a line to more or fewer instructions. A budget is a
quarter above what was counted when it was set; a change that makes a path longer on purpose
raises it, and says why in its commit.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.commands.mailbox import Mailbox
from headrace.domain.message import Command, DomainEvent, EventContext
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream
from headrace.projections.definition.fold import fold_streams
from headrace.projections.definition.projection import Projection
from headrace.rebuild.decode import Decoder
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.local.memory import remember
from headrace.serialization import JsonSerializer
from headrace_mq._net.link import Link, LinkSettings
from headrace_mq._runtime.clock import SystemClock
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.client.producer.send_buffer import SendBuffer
from headrace_mq.errors import Closed
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import (
    Columns,
    decode_columns,
    decode_records,
    encode_batch,
    read_header,
)
from headrace_mq.protocol.filter.batch_filter import BatchFilter
from headrace_mq.settings import ProducerSettings, StoreSettings
from headrace_mq.store.message_store import MessageStore
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount

Cost = Callable[[Callable[[], Any]], float]

QUEUE = QueueRef("events", 0)
RECORDS = 100


class Paid(DomainEvent):
    amount: int


class QuickDisk(SystemFiles):
    """One whose syncs are never too slow for the event loop."""

    def sync(self, fd: int) -> int:
        super().sync(fd)
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    command_id: str


class Balance(BaseModel):
    account_id: str
    balance: int = 0


def columns(count: int) -> Columns:
    return Columns(
        keys=[f"key-{n}" for n in range(count)],
        tags=(),
        headers=(),
        bodies=[b"x" * 100] * count,
        born_deltas=(),
    )


def encoded(count: int) -> bytearray:
    return encode_batch(QUEUE, columns(count), born_first_ms=1)


@pytest.fixture(scope="module")
def streams() -> list[EventStream]:
    return [
        EventStream(
            aggregate_type="Account",
            aggregate_id=f"a-{n}",
            version=1,
            command_id=f"c-{n}",
            correlation_id="c",
            recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
            events=(Paid(amount=n),),
        )
        for n in range(RECORDS)
    ]


@pytest.fixture(scope="module")
def serializer() -> JsonSerializer:
    events: Registry[DomainEvent] = Registry("event")
    events.add(Paid)
    commands: Registry[Command] = Registry("command")
    return JsonSerializer(commands, events)


@pytest.mark.parametrize("count", [1, RECORDS])
def test_a_batch_costs_no_more_for_many_records_than_for_one(cost: Cost, count: int) -> None:
    sent, batch = columns(count), encoded(count)
    assert cost(lambda: encode_batch(QUEUE, sent, born_first_ms=1)) <= 7
    assert cost(lambda: decode_columns(batch, read_header(batch))) <= 10
    assert cost(lambda: decode_records(batch)) <= 16


def sold(prices: list[int], tag: str) -> bytes:
    many = len(prices)
    tags, headers = [tag] * many, [{"price": str(price), "note": "x"} for price in prices]
    sent = Columns([], tags, headers, [b"x" * 100] * many, [])
    return bytes(encode_batch(QUEUE, sent, born_first_ms=1))


def test_a_batch_without_a_match_costs_no_more_for_many_messages(cost: Cost) -> None:
    batch = sold([n % 99 for n in range(RECORDS)], "usual")
    by_tag, by_price, by_text = (
        BatchFilter("_tag = 'x'"),
        BatchFilter("price >= 99"),
        BatchFilter("note = 'y'"),
    )
    assert by_price.part_of(batch, picks=True) is None
    assert cost(lambda: by_tag.part_of(batch, picks=True)) <= 1.2
    assert cost(lambda: by_text.part_of(batch, picks=True)) <= 8
    # One comprehension over the messages, which compares each number with its bounds.
    assert cost(lambda: by_price.part_of(batch, picks=True)) <= 58


def test_one_match_of_a_hundred_costs_the_picking_of_one(cost: Cost) -> None:
    batch_filter, batch = BatchFilter("price >= 99"), sold([*range(RECORDS)], "usual")
    part = batch_filter.part_of(batch, picks=True)
    assert part is not None
    assert part.records == 1
    assert cost(lambda: batch_filter.part_of(batch, picks=True)) <= 81


async def test_appending_a_batch_stays_cheap(cost: Cost, tmp_path: Path) -> None:
    store = MessageStore(StoreSettings(directory=tmp_path))
    store.open()
    batches = iter([encoded(RECORDS), encoded(RECORDS)])
    try:
        assert cost(lambda: store.append(next(batches), retention="forever")) <= 16
        await store.durable()
    finally:
        await store.aclose()


def test_encoding_and_decoding_a_stream_stay_cheap(
    cost: Cost, streams: list[EventStream], serializer: JsonSerializer
) -> None:
    bodies = [serializer.encode_stream(stream) for stream in streams]
    assert cost(lambda: [*map(serializer.encode_stream, streams)]) / RECORDS <= 6
    assert cost(lambda: [*map(serializer.decode_stream, bodies)]) / RECORDS <= 9


def test_folding_an_event_stays_cheap(cost: Cost, streams: list[EventStream]) -> None:
    balances = Projection("balances", row=Balance, key="account_id")

    @balances.fold
    def paid(row: Balance | None, event: Paid, context: EventContext) -> Balance:
        before = row.balance if row else 0
        return Balance(account_id=context.aggregate_id, balance=before + event.amount)

    assert cost(lambda: fold_streams(balances, {}, streams)) / RECORDS <= 9.5


def test_an_event_passes_a_rebuild_cheaply(
    cost: Cost, streams: list[EventStream], serializer: JsonSerializer
) -> None:
    balances = Projection("balances", row=Balance, key="account_id")

    @balances.fold
    def paid(row: Balance | None, event: Paid, context: EventContext) -> Balance:
        return Balance(account_id=context.aggregate_id, balance=event.amount)

    bodies = [serializer.encode_stream(stream) for stream in streams]
    decoder, portion = Decoder(serializer, balances.reacts_to), Portion(range(RECORDS), bodies)
    told = decoder.decode(QUEUE, portion, 0).told
    assert cost(lambda: decoder.decode(QUEUE, portion, 0)) / RECORDS <= 6.2
    assert cost(lambda: remember(balances).take(told)) / RECORDS <= 8.2
    assert remember(balances).take(told) == (RECORDS, None)


@pytest.mark.parametrize("ahead", [1, RECORDS])
def test_a_command_passes_a_mailbox_cheaply_however_many_run_ahead(cost: Cost, ahead: int) -> None:
    commands = [Named(command_id=f"c-{n}") for n in range(RECORDS)]

    def work() -> None:
        mailbox: Mailbox[Named] = Mailbox()
        for first in range(0, RECORDS, ahead):
            for command in commands[first : first + ahead]:
                mailbox.offer(command)
            while mailbox.take() is not None:
                mailbox.ran()
            while mailbox.oldest is not None:
                mailbox.settle()

    assert cost(work) / RECORDS <= 5.8


def test_a_command_in_one_process_stays_cheap(cost: Cost) -> None:
    async def bank(commands: int) -> None:
        async with app.run_local() as running:
            execute = running.bus.execute
            await asyncio.gather(
                *(execute(OpenAccount(account_id=f"a-{n}", owner="o")) for n in range(10))
            )
            await asyncio.gather(
                *(
                    execute(Deposit(account_id=f"a-{n % 10}", transaction_id=str(n), amount=1))
                    for n in range(commands)
                )
            )

    # Least of three: how many commands meet in one turn of the loop is a matter of time.
    costs = [cost(lambda: asyncio.run(bank(300))) / 300 for _ in range(3)]
    assert min(costs) <= 300


async def test_a_message_gets_its_place_cheaply(cost: Cost) -> None:
    link = Link("127.0.0.1:1", client_id="c", settings=LinkSettings((1, 1)))
    link.frame_bytes_max = 4 << 20
    buffer = SendBuffer(
        link, ProducerSettings(), SystemClock(), selector=None, want_route=lambda topic: None
    )
    buffer.open_route("events", 1)
    messages = [Message(topic="events", body=b"x" * 50, key=f"k-{n}") for n in range(RECORDS)]
    assert cost(lambda: [*map(buffer.place, messages)]) / RECORDS <= 6.5
    buffer.abandon(Closed("the end"))


async def test_making_an_append_durable_and_reading_it_at_the_tail_stay_cheap(
    cost: Cost, tmp_path: Path
) -> None:
    store = MessageStore(StoreSettings(directory=tmp_path), files=QuickDisk())
    store.open()
    offsets, batches = iter(range(3)), [encoded(1) for _ in range(3)]

    def cycle() -> None:
        store.append(batches.pop(), retention="forever")
        # What the loop calls at the end of the turn in which something was appended.
        store._flusher._run_cycle()
        assert store.read_now(QUEUE, next(offsets), 1 << 20)

    try:
        # The first one makes a segment, which is not for the loop.
        store.append(batches.pop(), retention="forever")
        await store.durable()
        next(offsets)
        assert cost(cycle) <= 64
    finally:
        await store.aclose()
