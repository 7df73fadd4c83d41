"""Transactions that are prepared together."""

import asyncio
from typing import Any

import pytest

from headrace_mq.client.producer.route import Route
from headrace_mq.client.transactions.prepare_batcher import Bundling
from headrace_mq.errors import Closed, SendTimeout
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import decode_columns, read_header
from headrace_mq.protocol.bodies import decode
from headrace_mq.protocol.transactions import TRANSACTION_QUEUE, Bundle


class Clock:
    def now_ms(self) -> int:
        return 5

    def monotonic_ms(self) -> int:
        return 5


class Sending:
    """Takes bundles, and answers when it is told to."""

    def __init__(self, **changed: Any) -> None:
        self.sent: list[Bundle] = []
        self.answers: list[asyncio.Future[SendResult]] = []
        self.failure: Exception | None = None
        limits = {"transactions_max": 100, "bytes_max": 10_000, **changed}
        self.bundling = Bundling(
            group="g", client_id="c", send=self.send, codec="none", clock=Clock(), **limits
        )
        for topic in ("t", "u"):
            self.bundling.routes[topic] = Route(topic, 2)

    def send(self, message: Message) -> "asyncio.Future[SendResult]":
        if self.failure is not None:
            raise self.failure
        self.sent.append(decode(Bundle, message.body))
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def add(self, name: str, *topics: str, key: str = "") -> "asyncio.Future[tuple[int, int]]":
        messages = [Message(topic=topic, body=name.encode(), key=key) for topic in topics or ("t",)]
        return self.bundling.add(name, messages, 100)

    def answer(self, offset: int) -> None:
        self.answers.pop(0).set_result(SendResult(TRANSACTION_QUEUE, offset))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_transactions_that_are_begun_in_one_tick_are_prepared_together() -> None:
    sending = Sending()
    prepared = [sending.add(name) for name in ("a", "b")]
    await turn()
    assert [bundle.ids for bundle in sending.sent] == [["a", "b"]]
    sending.answer(7)
    assert [await one for one in prepared] == [(7, 0), (7, 1)]


async def test_while_bundles_are_on_their_way_others_gather() -> None:
    sending = Sending()
    for name in ("a", "b", "c", "d"):
        sending.add(name)
        await turn()
    assert [bundle.ids for bundle in sending.sent] == [["a"], ["b"]]
    sending.answer(1)
    await turn()
    assert [bundle.ids for bundle in sending.sent[2:]] == [["c", "d"]]
    sending.answer(2)
    sending.answer(3)
    await sending.bundling.drained()


async def test_a_bundle_has_its_limits() -> None:
    sending = Sending(transactions_max=2)
    for number in range(5):
        sending.add(str(number))
    await turn()
    assert [bundle.ids for bundle in sending.sent] == [["0", "1"], ["2", "3"]]


async def test_a_bundle_that_is_full_leaves_before_the_tick_ends() -> None:
    sending = Sending(transactions_max=2)
    for name in ("a", "b", "c"):
        sending.add(name)
    assert [bundle.ids for bundle in sending.sent] == [["a", "b"]]
    await turn()
    assert [bundle.ids for bundle in sending.sent[1:]] == [["c"]]


async def test_transactions_beyond_the_bytes_of_a_bundle_go_in_the_next_one() -> None:
    sending = Sending(bytes_max=220)
    for name in ("a", "b", "c"):
        sending.add(name)
    await turn()
    assert [bundle.ids for bundle in sending.sent] == [["a"], ["b"]]
    sending.answer(1)
    await turn()
    assert [bundle.ids for bundle in sending.sent[2:]] == [["c"]]


@pytest.mark.parametrize("failure", [Closed("closed"), RuntimeError("a defect")])
async def test_a_bundle_that_cannot_be_handed_over_fails_for_all_its_callers(
    failure: Exception,
) -> None:
    sending = Sending(transactions_max=2)
    sending.failure = failure
    prepared = [sending.add(name) for name in ("a", "b")]
    errors = await asyncio.gather(*prepared, return_exceptions=True)
    expected = Closed if isinstance(failure, Closed) else SendTimeout
    assert [type(error) for error in errors] == [expected, expected]


async def test_messages_of_several_topics_go_to_a_batch_of_each_queue_with_their_owners() -> None:
    sending = Sending()
    sending.add("a", "t", "u", key="k")
    sending.add("b", "u", key="k")
    await turn()
    (bundle,) = sending.sent
    found = {}
    for part in bundle.parts:
        header = read_header(part.batch)
        found[header.queue] = (decode_columns(part.batch, header).bodies, part.owners)
    queue_id = next(iter(found)).queue_id
    assert found == {
        QueueRef("t", queue_id): ([b"a"], [0]),
        QueueRef("u", queue_id): ([b"a", b"b"], [0, 1]),
    }


@pytest.mark.parametrize("failure", [None, SendTimeout("late")])
async def test_an_unknown_outcome_is_everybodys_own_error(failure: Exception | None) -> None:
    sending = Sending()
    prepared = [sending.add(name) for name in ("a", "b")]
    await turn()
    if failure is None:
        sending.answer(-1)
    else:
        sending.answers.pop(0).set_exception(failure)
    errors = await asyncio.gather(*prepared, return_exceptions=True)
    assert [type(error) for error in errors] == [SendTimeout, SendTimeout]
    assert errors[0] is not errors[1]


async def test_a_caller_that_stops_waiting_does_not_keep_others_from_their_transactions() -> None:
    sending = Sending()
    gone, other = sending.add("a"), sending.add("b")
    await turn()
    gone.cancel()
    sending.answer(3)
    assert await other == (3, 1)
