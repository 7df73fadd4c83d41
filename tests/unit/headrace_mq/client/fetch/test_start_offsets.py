from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from headrace_mq._net.link import Link
from headrace_mq.client.fetch.start_offsets import Start, find_starts, offsets_at
from headrace_mq.errors import QueueNotFound, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

A, B = QueueRef("t", 0), QueueRef("t", 1)


async def find(link: Link, **changes: Any) -> dict[QueueRef, Start]:
    arguments = {
        "group": "g",
        "settings": ConsumerSettings(),
        "first_seen": frozenset([A, B]),
        "load_offsets": None,
    } | changes
    return await find_starts(link, [A, B], **arguments)


@pytest.fixture(autouse=True)
def two_queues(broker: Any) -> None:
    broker.topics["t"] = 2
    broker.first[A] = 3
    broker.append(A, [b"x"] * 4)
    broker.append(B, [b"x"] * 2)


async def test_a_group_goes_on_where_it_committed(broker: Any, link: Link) -> None:
    broker.offsets["g", A] = 5
    broker.offsets["g", B] = 0
    assert await find(link) == {
        A: Start(5, known=True, committed=5),
        B: Start(0, known=True, committed=0),
    }
    assert broker.count(RequestCode.QUEUE_RANGES) == 0


@pytest.mark.parametrize(("start", "offsets"), [("earliest", (3, 0)), ("latest", (7, 2))])
async def test_a_group_without_an_offset_begins_where_the_settings_say(
    link: Link, start: Any, offsets: tuple[int, int]
) -> None:
    starts = await find(link, settings=ConsumerSettings(start=start))
    assert starts == {
        queue: Start(offset, known=False, committed=-1)
        for queue, offset in zip((A, B), offsets, strict=True)
    }


async def test_queues_that_appeared_later_begin_at_their_first_offset(link: Link) -> None:
    starts = await find(link, settings=ConsumerSettings(start="latest"), first_seen=frozenset([A]))
    assert [starts[A].offset, starts[B].offset] == [7, 0]


async def test_a_time_is_where_the_first_younger_record_stands(broker: Any, link: Link) -> None:
    broker.now_ms = 500
    broker.append(A, [b"x"])
    starts = await find(link, settings=ConsumerSettings(start=400))
    assert [starts[A], starts[B]] == [
        Start(7, known=False, committed=-1),
        Start(2, known=False, committed=-1),
    ]
    settings = ConsumerSettings(start=400)
    starts = await find(link, settings=settings, first_seen=frozenset([B]))
    assert [starts[A].offset, starts[B].offset] == [3, 2]


async def test_offsets_of_a_time_are_those_of_existing_queues(broker: Any, link: Link) -> None:
    assert await offsets_at(link, [], 0, settings=ConsumerSettings()) == {}
    assert await offsets_at(link, [B], 0, settings=ConsumerSettings()) == {B: 0}
    with pytest.raises(QueueNotFound, match="from 0 to 1"):
        await offsets_at(link, [QueueRef("t", 2)], 0, settings=ConsumerSettings())


async def test_the_applications_own_offsets_are_asked_instead_of_the_brokers(
    broker: Any, link: Link
) -> None:
    broker.offsets["g", A] = 5
    asked: list[QueueRef] = []

    async def load(queues: Sequence[QueueRef]) -> Mapping[QueueRef, int]:
        asked.extend(queues)
        return {B: 1}

    assert await find(link, load_offsets=load) == {
        A: Start(3, known=False, committed=-1),
        B: Start(1, known=True, committed=1),
    }
    assert asked == [A, B]
    assert broker.count(RequestCode.GET_OFFSETS) == 0


async def test_what_the_broker_refuses_is_raised(broker: Any, link: Link) -> None:
    del broker.topics["t"]
    with pytest.raises(TopicNotFound):
        await find(link)
