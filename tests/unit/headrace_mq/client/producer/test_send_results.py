import pytest

from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.producer.send_results import BatchRun, SendResults
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import QueueRef, SendResult


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
