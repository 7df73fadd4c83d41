"""Messages come from a replica while one serves, and from the leader else: each once, and in order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from headrace_mq._net.address import BrokerAddress
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.client.sync.replicas import Replicas
from headrace_mq.errors import Closed, ConnectionLost, NotLeader
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import FetchAnswer, encode_fetch_answer
from headrace_mq.protocol.codes import RequestCode

FETCH = RequestCode.FETCH
QUEUE = QueueRef("t", 0)
T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


@pytest.fixture
async def replicas(broker: Any, free_port: Callable[[], int]) -> AsyncIterator[list[Any]]:
    """Two replicas of the broker, which a test gives what they have."""
    made = [type(broker)(free_port()) for _ in range(2)]
    for one in made:
        one.is_replica = True
        await one.start()
    yield made
    for one in made:
        await one.stop()


@pytest.fixture
def group(broker: Any, replicas: list[Any]) -> str:
    """The address of a leader and its replicas, which all have nine messages."""
    for one in (broker, *replicas):
        one.topics["t"] = 1
        for first in (0, 3, 6):
            one.append(QUEUE, [b"%d" % number for number in range(first, first + 3)])
    return ",".join(one.address for one in (*replicas, broker))


ALL = [b"%d" % number for number in range(9)]


def read(reader: BlockingReader, start: int = 0, end: int = 9) -> list[bytes]:
    parts = reader.read(QUEUE, start, end, bytes_max=1)
    return [body for _, columns, *span in parts for body in columns.bodies[slice(*span)]]


def opened(address: str) -> BlockingReader:
    return BlockingReader(address, timeout_ms=20_000, read_from="replica")


def fetches(brokers: list[Any]) -> list[int]:
    return [one.count(FETCH) for one in brokers]


async def test_messages_come_from_a_replica_and_ends_from_the_leader(
    broker: Any, replicas: list[Any], group: str
) -> None:
    with await aside(lambda: opened(group)) as reader:
        assert await aside(lambda: read(reader)) == ALL
        assert not broker.peers
        assert [one.end for one in await aside(lambda: reader.ranges(["t"]))] == [9]
    assert broker.count(FETCH) == 0
    assert sorted(fetches(replicas))[0] == 0
    with pytest.raises(Closed):
        read(reader)


async def test_an_address_may_ask_for_a_replica(
    broker: Any, replicas: list[Any], group: str
) -> None:
    address = f"tcp://{group}?read_from=replica"
    with await aside(lambda: BlockingReader(address)) as reader:
        assert await aside(lambda: read(reader)) == ALL
    assert broker.count(FETCH) == 0
    with await aside(lambda: BlockingReader(address, read_from="leader")) as reader:
        assert await aside(lambda: read(reader)) == ALL
    assert broker.count(FETCH) > 0


async def test_messages_that_a_replica_lacks_come_from_the_leader(
    broker: Any, replicas: list[Any], group: str
) -> None:
    for one in replicas:
        one.batches[QUEUE].pop()
        # It waits, and then it says that there is nothing.
        one.held = {FETCH}
    with await aside(lambda: opened(group)) as reader:
        task = asyncio.create_task(aside(lambda: read(reader)))
        served = [asyncio.create_task(serve(one)) for one in replicas]
        assert await task == ALL
        for one in served:
            one.cancel()
    assert broker.count(FETCH) == 1


async def serve(replica: Any) -> None:
    while True:
        request = await replica.next(FETCH)
        replica.serve(request)
        if replica.parked:
            replica.parked.pop().answer(encode_fetch_answer(FetchAnswer([])))


@pytest.mark.parametrize("trouble", ["trimmed", "gap", "damage", "another queue"])
async def test_a_replica_that_cannot_serve_an_offset_is_no_error(
    broker: Any, replicas: list[Any], group: str, trouble: str
) -> None:
    for one in replicas:
        held = one.batches[QUEUE]
        if trouble == "trimmed":
            one.first[QUEUE] = 5
        elif trouble == "gap":
            del held[1]
        elif trouble == "damage":
            held[1] = held[1][:-1] + bytes([held[1][-1] ^ 1])
        else:
            one.append(QueueRef("u", 0), [b"x"])
            held[1] = one.batches[QueueRef("u", 0)][0]
    with await aside(lambda: opened(group)) as reader:
        assert await aside(lambda: read(reader)) == ALL
    assert broker.count(FETCH) > 0


@pytest.mark.parametrize("end", [4, 5, 6])
async def test_the_last_messages_of_a_range_that_a_replica_lacks_come_from_the_leader(
    broker: Any, replicas: list[Any], group: str, end: int
) -> None:
    for one in replicas:
        del one.batches[QUEUE][1]
    with await aside(lambda: opened(group)) as reader:
        assert await aside(lambda: read(reader, 0, end)) == ALL[:end]
    assert broker.count(FETCH) > 0


async def test_a_lost_replica_is_replaced_by_the_other_one(
    broker: Any, replicas: list[Any], group: str
) -> None:
    with await aside(lambda: opened(group)) as reader:
        parts = reader.read(QUEUE, 0, 9, bytes_max=1)
        first = await aside(lambda: next(parts)[1].bodies)
        await next(one for one in replicas if one.peers).stop()
        rest = await aside(lambda: [body for part in parts for body in part[1].bodies])
        assert first + rest == ALL
    assert broker.count(FETCH) == 0


async def test_without_a_replica_the_leader_serves_and_the_log_says_so_once(
    broker: Any, replicas: list[Any], group: str
) -> None:
    with await aside(lambda: opened(group)) as reader, capture_logs() as logs:
        for one in replicas:
            await one.stop()
        for _ in range(3):
            assert await aside(lambda: read(reader)) == ALL
    told = [one for one in logs if "so they go to the leader" in one["event"]]
    assert len(told) == 1
    assert "refused" in told[0]["reason"]
    assert "it leads" in told[0]["reason"]


async def test_a_read_goes_on_while_the_leader_is_away(
    broker: Any, replicas: list[Any], group: str
) -> None:
    await broker.stop()
    with await aside(
        lambda: BlockingReader(group, timeout_ms=3_000, read_from="replica")
    ) as reader:
        assert await aside(lambda: read(reader)) == ALL
        with pytest.raises(ConnectionLost):
            await aside(lambda: reader.ranges(["t"]))


async def test_a_lone_broker_is_read_from(broker: Any, free_port: Callable[[], int]) -> None:
    broker.topics["t"] = 1
    broker.append(QUEUE, [b"0"])
    with await aside(lambda: opened(broker.address)) as reader:
        assert await aside(lambda: read(reader, 0, 1)) == [b"0"]
    with pytest.raises(ConnectionLost, match="no broker answers"):
        await aside(lambda: opened(f"127.0.0.1:{free_port()}"))


async def test_a_failure_of_an_earlier_connection_does_not_give_up_the_present_one(
    broker: Any, replicas: list[Any], group: str
) -> None:
    found = Replicas(BrokerAddress.parse(group), 5_000)

    def use() -> None:
        first = found.connection()
        assert first is not None
        found.lost(first, NotLeader("gone"))
        second = found.connection()
        assert second not in {None, first}
        found.lost(first, NotLeader("gone"))
        assert found.connection() is second
        found.close()

    await aside(use)
