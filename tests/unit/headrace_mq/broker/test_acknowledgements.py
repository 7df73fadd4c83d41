import asyncio

import pytest

from headrace_mq.broker.acknowledgements import Acknowledgements
from headrace_mq.errors import ResponseCode, StoreFull
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, decode
from headrace_mq.store.log.commit_gate import Durable

OK = Produced("t", 0, 5)
REFUSED = Produced("t", 1, -1, ResponseCode.QUEUE_NOT_FOUND, "no such queue")


class FakeConnection:
    def __init__(self) -> None:
        self.answers: list[tuple[int, int, list[Produced]]] = []
        self.charged = 0
        self.gathering = False
        self.writes: list[int] = []

    def answer(self, code: int, correlation: int, body: bytes) -> None:
        assert self.gathering
        self.answers.append((code, correlation, decode(ProduceAnswer, body).results))

    def gather(self) -> None:
        self.gathering = True

    def flush(self) -> None:
        self.gathering = False
        self.writes.append(len(self.answers))

    def charge(self, size: int) -> None:
        self.charged += size

    def discharge(self, size: int) -> None:
        self.charged -= size


class FakeStore:
    """Flush groups that are ended by hand."""

    def __init__(self) -> None:
        self.group = Durable(loop=asyncio.get_running_loop())

    def durable(self) -> Durable:
        return self.group

    def next_group(self) -> Durable:
        old, self.group = self.group, Durable(loop=asyncio.get_running_loop())
        return old


@pytest.fixture
async def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
async def connection() -> FakeConnection:
    return FakeConnection()


async def turn() -> None:
    """One turn of the loop, in which callbacks of futures run."""
    await asyncio.sleep(0)


async def test_the_answers_of_a_flush_leave_at_once_in_one_write(store, connection) -> None:
    subject = Acknowledgements(store.durable)
    subject.hold(connection, 1, [OK], 100)
    subject.hold(connection, 2, [OK], 100)
    store.group.settle(None)
    # No turn of the loop lies between: the producers wait for it.
    assert connection.writes == [2]


async def test_nothing_is_answered_before_the_flush(store, connection) -> None:
    subject = Acknowledgements(store.durable)
    subject.hold(connection, 1, [OK], 100)
    await turn()
    assert (connection.answers, connection.charged) == ([], 100)
    store.group.settle(None)
    await turn()
    assert connection.answers == [(ResponseCode.OK, 1, [OK])]
    assert connection.charged == 0


async def test_one_flush_answers_all_that_waited_for_it_and_no_other(store, connection) -> None:
    subject = Acknowledgements(store.durable)
    subject.hold(connection, 1, [OK], 1)
    subject.hold(connection, 2, [OK], 1)
    first = store.next_group()
    subject.hold(connection, 3, [OK], 1)
    first.settle(None)
    await turn()
    assert [correlation for _, correlation, _ in connection.answers] == [1, 2]
    store.group.settle(None)
    await turn()
    assert [correlation for _, correlation, _ in connection.answers] == [1, 2, 3]


async def test_a_durable_request_is_answered_at_once(store, connection) -> None:
    subject = Acknowledgements(store.durable)
    store.group.settle(None)
    for number in (1, 2):
        subject.hold(connection, number, [OK], 100)
    assert [correlation for _, correlation, _ in connection.answers] == [1, 2]
    assert connection.charged == 0


@pytest.mark.parametrize("early", [True, False])
async def test_a_failed_flush_refuses_what_waited_and_keeps_what_was_refused(
    store, connection, early: bool
) -> None:
    subject = Acknowledgements(store.durable)
    if early:
        subject.hold(connection, 1, [OK, REFUSED], 1)
    store.group.settle(StoreFull("the disk is full; free some space"))
    if not early:
        subject.hold(connection, 1, [OK, REFUSED], 1)
    await turn()
    ((code, _, results),) = connection.answers
    assert code == ResponseCode.OK
    assert results == [
        Produced("t", 0, -1, ResponseCode.STORE_FULL, "the disk is full; free some space"),
        REFUSED,
    ]


async def test_a_flush_that_a_defect_ends_is_no_success(store, connection) -> None:
    subject = Acknowledgements(store.durable)
    subject.hold(connection, 1, [OK], 1)
    store.group.settle(RuntimeError("a defect"))
    assert connection.answers[0][2][0].code == ResponseCode.INTERNAL_ERROR


async def test_draining_returns_when_everything_is_answered(store, connection) -> None:
    subject = Acknowledgements(store.durable)
    await subject.drain()
    subject.hold(connection, 1, [OK], 1)
    first = store.next_group()
    subject.hold(connection, 2, [OK], 1)
    drained = asyncio.ensure_future(subject.drain())
    first.settle(None)
    await turn()
    assert not drained.done()
    store.group.settle(None)
    await drained
    assert [correlation for _, correlation, _ in connection.answers] == [1, 2]
