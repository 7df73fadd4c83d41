import asyncio

import pytest

from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.producer.send_results import (
    BatchRun,
    SendResults,
    all_placed,
    outcomes,
    report,
    settled,
    too_late,
)
from headrace_mq.errors import ConnectionLost, InvalidArgument, MalformedRequest, SendTimeout
from headrace_mq.message import QueueRef, SendResult
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, encode


def stored(queue: int, base: int) -> Batch:
    batch = Batch(QueueRef("t", queue))
    batch.stored(base, duplicate=False)
    return batch


def make() -> SendResults:
    return SendResults(
        [
            BatchRun(stored(0, 10), 2, range(0, 4, 2)),
            BatchRun(stored(1, 50), 0, [1]),
            BatchRun(stored(1, 90), 7, [3]),
        ]
    )


def test_results_stand_in_the_order_of_the_messages() -> None:
    first, second = QueueRef("t", 0), QueueRef("t", 1)
    assert make() == [
        SendResult(first, 12),
        SendResult(second, 50),
        SendResult(first, 13),
        SendResult(second, 97),
    ]


def test_results_are_a_sequence() -> None:
    results = make()
    assert len(results) == 4
    assert results[0] == next(iter(results))
    assert results[-1].offset == 97
    assert results[1:3] == list(results)[1:3]
    assert repr(results) == repr(list(results))


def test_results_compare_with_lists_and_with_each_other() -> None:
    assert make() == make()
    assert make() != list(make())[1:]
    assert make() != "else"
    assert make() != SendResults([])


def test_reading_what_was_given_up_raises_why() -> None:
    batch = Batch(QueueRef("t", 0))
    batch.failed(InvalidArgument("no"))
    with pytest.raises(InvalidArgument):
        SendResults([BatchRun(batch, 0, [0])])[0]


def answer(*results: Produced) -> memoryview:
    return memoryview(encode(ProduceAnswer(list(results))))


def test_each_batch_has_its_own_outcome() -> None:
    stored = Produced("t", 0, 7)
    refused = Produced("t", 1, -1, InvalidArgument.code, "no")
    found = outcomes(answer(stored, refused), 2)
    assert found[0] == stored
    assert isinstance(found[1], InvalidArgument)
    assert str(found[1]) == "no"


def test_an_error_is_that_of_every_batch() -> None:
    lost = ConnectionLost("gone")
    assert outcomes(lost, 3) == [lost, lost, lost]


@pytest.mark.parametrize("found", [memoryview(b"?"), answer(Produced("t", 0, 7))])
def test_an_answer_that_does_not_fit_fails_all_batches(found: memoryview) -> None:
    assert [type(error) for error in outcomes(found, 2)] == [MalformedRequest, MalformedRequest]


def sent(attempts: int, *refusals: str) -> Batch:
    batch = Batch(QueueRef("t", 0))
    batch.attempts = attempts
    batch.refusals += refusals
    return batch


def test_a_message_that_was_never_sent_has_no_unknown_outcome() -> None:
    for never in (None, sent(0)):
        assert str(too_late("h:1", 5, never)) == "not sent within 5 ms to h:1"


def test_the_outcome_is_known_where_every_attempt_was_refused_and_no_sooner() -> None:
    refused = str(too_late("h:1", 5, sent(2, "the disk is full", "it is stopping")))
    assert refused == "not stored: h:1 refused the message for 5 ms, last because it is stopping"
    for doubtful in (sent(1), sent(2, "the disk is full")):
        told = str(too_late("h:1", 5, doubtful))
        assert "unknown outcome: no acknowledgement from h:1 within 5 ms" in told


async def test_cancelling_one_caller_leaves_the_others_waiting() -> None:
    loop, batch = asyncio.get_running_loop(), Batch(QueueRef("t", 0))
    first, second = (asyncio.create_task(settled(batch, loop)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()
    batch.stored(0, duplicate=False)
    await second


async def test_places_are_waited_for_and_the_first_failure_is_raised() -> None:
    loop, batch = asyncio.get_running_loop(), Batch(QueueRef("t", 0))
    good, bad = loop.create_future(), loop.create_future()
    waiting = asyncio.create_task(all_placed([(batch, 0), good]))
    await asyncio.sleep(0)
    good.set_result((batch, 1))
    assert await waiting == [(batch, 0), (batch, 1)]
    bad.set_exception(SendTimeout("late"))
    with pytest.raises(SendTimeout):
        await all_placed([(batch, 0), bad])


async def test_a_report_passes_on_failures_cancellations_and_results() -> None:
    loop, batch = asyncio.get_running_loop(), Batch(QueueRef("t", 0))
    batch.stored(5, duplicate=False)
    places = [loop.create_future() for _ in range(3)]
    results = [loop.create_future() for _ in range(3)]
    places[0].set_result((batch, 2))
    places[1].set_exception(SendTimeout("late"))
    places[2].cancel()
    for result, place in zip(results, places, strict=True):
        report(result, place)
    assert (await results[0]).offset == 7
    with pytest.raises(SendTimeout):
        await results[1]
    assert results[2].cancelled()
