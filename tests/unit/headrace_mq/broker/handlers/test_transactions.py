"""Transactions over the wire."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_mq.errors import InvalidArgument, ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import JoinGroup, QueueRanges, QueueRangesAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.transactions import (
    TRANSACTION_QUEUE,
    TRANSACTION_TOPIC,
    Bundle,
    BundleEnds,
    BundlePart,
    ChecksAnswer,
    EndTransactions,
    TakeChecks,
    TransactionsDescription,
    TransactionsEnded,
)


def offer(**fields: int) -> bytearray:
    inner = encode_batch(QueueRef("t", 0), Columns([], [], [], [b"1", b"2"], []), born_first_ms=1)
    bundle = Bundle("g", "client", ["a", "b"], [BundlePart(bytes(inner), [0, 1])])
    columns = Columns([], [], [], [encode(bundle)], [])
    return encode_batch(TRANSACTION_QUEUE, columns, born_first_ms=1, **fields)


async def held(client: Any) -> int:
    """How many messages the topic has."""
    answer = await client.ask(RequestCode.QUEUE_RANGES, QueueRanges(["t"]))
    return decode(QueueRangesAnswer, answer).ranges[0].end


async def test_a_transaction_is_prepared_by_producing_and_decided_by_its_number(
    client: Any,
) -> None:
    await client.create("t")
    (stored,) = (await client.produce(offer(producer_id=9))).results
    assert (stored.code, await held(client)) == (ResponseCode.OK, 0)
    (again,) = (await client.produce(offer(producer_id=9))).results
    assert (again.base_offset, again.duplicate) == (stored.base_offset, True)
    described = await client.ask(RequestCode.DESCRIBE_TRANSACTIONS)
    assert decode(TransactionsDescription, described).undecided == 2
    ends = EndTransactions("g", [BundleEnds(stored.base_offset, [0], [1])])
    for _ in range(2):
        answer = decode(TransactionsEnded, await client.ask(RequestCode.END_TRANSACTIONS, ends))
        assert answer.otherwise == []
    assert await held(client) == 1


async def test_decisions_on_nothing_are_refused(client: Any) -> None:
    ends = EndTransactions("g", [BundleEnds(0, [0], [])])
    refusal = await client.refusal(RequestCode.END_TRANSACTIONS, ends)
    assert isinstance(refusal, InvalidArgument)


async def test_a_request_for_checks_waits_and_is_answered_with_nothing_in_the_end(
    client: Any,
) -> None:
    answer = await client.ask(RequestCode.TAKE_CHECKS, TakeChecks("g", "client", 1))
    assert decode(ChecksAnswer, answer).checks == []


async def test_a_transaction_that_stays_undecided_is_asked_for(
    start: Callable[..., Awaitable[Any]], connect: Any, clock: Any
) -> None:
    broker = await start(clock=clock, transaction_timeout_ms=1_000)
    client = await connect(broker)
    await client.create("t")
    await client.produce(offer())
    asked = client.send(RequestCode.TAKE_CHECKS, TakeChecks("g", "client", 15_000))
    # The broker has it when it has answered what came behind.
    assert await held(client) == 0
    clock.now += 1_000
    clock.monotonic += 1_000
    other = await connect(broker, "other")
    await other.ask(RequestCode.TAKE_CHECKS, TakeChecks("none", "other", 0))
    checks = decode(ChecksAnswer, (await client.answer(asked)).body).checks
    assert [check.transaction_id for check in checks] == ["a", "b"]


@pytest.mark.parametrize(
    "request_", [TakeChecks("", "c", 1), TakeChecks("g", "", 1), TakeChecks("g", "c", -1)]
)
async def test_a_senseless_request_for_checks_is_refused(client: Any, request_: TakeChecks) -> None:
    refusal = await client.refusal(RequestCode.TAKE_CHECKS, request_)
    assert isinstance(refusal, InvalidArgument)


async def test_nobody_consumes_the_journal_or_appends_under_its_producer_id(
    client: Any, batch: Any
) -> None:
    join = JoinGroup("g", "m", [TRANSACTION_TOPIC], [])
    assert isinstance(await client.refusal(RequestCode.JOIN_GROUP, join), InvalidArgument)
    await client.create("t")
    (own,) = (await client.produce(batch("t", producer_id=2))).results
    (junk,) = (await client.produce(batch(TRANSACTION_TOPIC))).results
    assert own.code == junk.code == ResponseCode.INVALID_ARGUMENT
