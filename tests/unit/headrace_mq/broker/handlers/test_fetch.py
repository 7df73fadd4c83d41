import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq.access import heads
from headrace_mq.broker.handlers import fetch as module
from headrace_mq.broker.handlers.fetch import QUEUES_PER_FETCH_MAX
from headrace_mq.broker.server import Broker
from headrace_mq.broker.users.guard import Guard
from headrace_mq.errors import InvalidArgument, ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, split_batches
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchAnswer,
    FetchedQueue,
    FetchFrom,
    TopicFilter,
    decode_fetch_answer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.filter.picks import picked_records
from headrace_mq.protocol.limits import Rates, SetGroup, SetQuota

LONG_MS = 60_000


def opened(body: memoryview) -> tuple[FetchAnswer, list[bytes]]:
    answer, batches = decode_fetch_answer(body)
    records = [record for view in split_batches(batches) for record in decode_records(view)]
    return answer, [record.body for record in records]


def request(
    *queues: tuple[str, int, int],
    bytes_max: int = 1 << 20,
    wait_ms: int = LONG_MS,
    filters: dict[str, str] | None = None,
    picks: bool = False,
) -> Fetch:
    places = [FetchFrom(*queue) for queue in queues]
    wanted = [TopicFilter(*one) for one in (filters or {}).items()]
    return Fetch(places, bytes_max, wait_ms, filters=wanted, picks=picks)


def numbered(topic: str, *numbers: int) -> bytearray:
    """A batch whose records have a number as header and body."""
    headers = [{"n": str(number)} for number in numbers]
    columns = Columns([], [], headers, [b"%d" % number for number in numbers], [])
    return encode_batch(QueueRef(topic, 0), columns, born_first_ms=1)


async def fetch(client, *queues: tuple[str, int, int], **values) -> tuple[FetchAnswer, list[bytes]]:
    return opened(await client.ask(RequestCode.FETCH, request(*queues, **values)))


@pytest.fixture
def parked(until):
    """Waits until as many fetches are parked."""

    async def wait(broker, count: int = 1) -> None:
        await until(lambda: len(broker._state.long_poll) == count)

    return wait


async def test_stored_messages_are_answered_at_once_with_the_range(client, batch) -> None:
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a", b"b"), batch("t", 0, b"c"))
    answer, bodies = await fetch(client, ("t", 0, 0))
    assert answer.queues == [FetchedQueue("t", 0, 0, 3)]
    assert bodies == [b"a", b"b", b"c"]


async def test_whole_batches_come_even_from_their_middle(client, batch) -> None:
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a", b"b"), batch("t", 0, b"c"))
    assert (await fetch(client, ("t", 0, 1)))[1] == [b"a", b"b", b"c"]
    assert (await fetch(client, ("t", 0, 2)))[1] == [b"c"]


async def test_at_least_one_batch_comes_however_small_the_limit(client, batch) -> None:
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a" * 100), batch("t", 0, b"b"))
    assert (await fetch(client, ("t", 0, 0), bytes_max=1))[1] == [b"a" * 100]


async def test_only_queues_with_something_to_say_are_named(client, batch) -> None:
    await client.create("t", 3)
    await client.produce(batch("t", 1, b"a"))
    answer, bodies = await fetch(client, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0))
    assert answer.queues == [FetchedQueue("t", 1, 0, 1)]
    assert bodies == [b"a"]


async def test_every_queue_comes_first_equally_often(client, batch) -> None:
    queues = 5
    await client.create("t", queues)
    await client.produce(*(batch("t", number, b"%d" % number) for number in range(queues)))
    places = [("t", number, 0) for number in range(queues)]
    first = Counter()
    for _ in range(20 * queues):
        first[(await fetch(client, *places, bytes_max=1))[0].queues[0].queue_id] += 1
    assert set(first) == set(range(queues))
    assert max(first.values()) - min(first.values()) <= 4


async def test_an_append_wakes_a_parked_fetch(broker, connect, client, batch, parked) -> None:
    await client.create("t", 2)
    reader = await connect(broker, "reader")
    correlation = reader.send(RequestCode.FETCH, request(("t", 0, 0), ("t", 1, 0)))
    await parked(broker)
    await client.produce(batch("t", 1, b"news"))
    assert opened((await reader.answer(correlation)).body)[1] == [b"news"]
    assert len(broker._state.long_poll) == 0


async def test_an_append_to_another_queue_wakes_no_fetch(
    broker, connect, client, batch, parked
) -> None:
    await client.create("t", 2)
    reader = await connect(broker, "reader")
    correlation = reader.send(RequestCode.FETCH, request(("t", 0, 0)))
    await parked(broker)
    await client.produce(batch("t", 1))
    await reader.ask(RequestCode.DESCRIBE_BROKER)
    assert correlation not in reader.answers
    assert len(broker._state.long_poll) == 1


async def test_a_fetch_whose_time_runs_out_is_answered_with_nothing(client) -> None:
    await client.create("t", 1)
    assert await fetch(client, ("t", 0, 0), wait_ms=1) == (FetchAnswer([]), [])


async def test_a_fetch_that_does_not_want_to_wait_does_not(broker, client) -> None:
    await client.create("t", 1)
    assert await fetch(client, ("t", 0, 0), wait_ms=0) == (FetchAnswer([]), [])


async def test_a_fetch_waits_no_longer_than_the_broker_allows(start, connect) -> None:
    client = await connect(await start(fetch_wait_ms_max=1))
    await client.create("t", 1)
    assert await fetch(client, ("t", 0, 0)) == (FetchAnswer([]), [])


async def test_a_fetch_that_finds_no_room_to_wait_is_answered_with_nothing(
    start, connect, parked
) -> None:
    broker = await start(parked_fetches_max=1)
    client = await connect(broker)
    await client.create("t", 1)
    client.send(RequestCode.FETCH, request(("t", 0, 0)))
    await parked(broker)
    assert await fetch(client, ("t", 0, 0)) == (FetchAnswer([]), [])


async def test_one_connection_may_park_several_fetches(broker, client, batch, parked) -> None:
    await client.create("t", 2)
    sent = [client.send(RequestCode.FETCH, request(("t", number, 0))) for number in (0, 1)]
    await parked(broker, 2)
    await client.produce(batch("t", 0, b"a"), batch("t", 1, b"b"))
    bodies = [opened((await client.answer(correlation)).body)[1] for correlation in sent]
    assert bodies == [[b"a"], [b"b"]]


async def test_parked_fetches_go_with_their_connection(broker, connect, parked) -> None:
    client = await connect(broker)
    await client.create("t", 1)
    client.send(RequestCode.FETCH, request(("t", 0, 0)))
    await parked(broker)
    client.writer.transport.abort()
    await parked(broker, 0)


@pytest.mark.parametrize("offset", [-1, 2, 1 << 40])
async def test_an_offset_out_of_range_is_answered_at_once_with_the_other_queues(
    client, batch, offset: int
) -> None:
    await client.create("t", 2)
    await client.produce(batch("t", 0, b"a"), batch("t", 1, b"b"))
    answer, bodies = await fetch(client, ("t", 0, offset), ("t", 1, 0))
    states = {state.queue_id: state for state in answer.queues}
    assert states[0].code == ResponseCode.OFFSET_OUT_OF_RANGE
    assert (states[0].first, states[0].end) == (0, 1)
    assert str(offset) in states[0].sentence
    assert bodies == [b"b"]


@pytest.mark.parametrize("queue", [("t", 1, 0), ("t", -1, 0), ("unknown", 0, 0)])
async def test_an_unknown_queue_is_answered_at_once(client, queue: tuple[str, int, int]) -> None:
    await client.create("t", 1)
    (state,) = (await fetch(client, queue))[0].queues
    assert state.code == ResponseCode.QUEUE_NOT_FOUND
    assert state.sentence


async def test_errors_of_many_queues_never_make_an_answer_too_large(start, connect) -> None:
    limit = 64 << 10
    broker = await start(frame_bytes_max=limit)
    client = await connect(broker)
    names = [("x" * 120 + f"{number}", 0, 0) for number in range(400)]
    answer, _ = await fetch(client, *names)
    assert 0 < len(answer.queues) < len(names)


@pytest.mark.parametrize(
    "wrong",
    [
        request(),
        request(*[("t", 0, 0)] * (QUEUES_PER_FETCH_MAX + 1)),
        request(("t", 0, 0), bytes_max=0),
        request(("t", 0, 0), wait_ms=-1),
        request(("not a topic", 0, 0)),
        request(("t", 0, 0), filters={"t": "n >"}),
    ],
)
async def test_values_out_of_range_are_refused(client, wrong: Fetch) -> None:
    await client.create("t", 1)
    assert isinstance(await client.refusal(RequestCode.FETCH, wrong), InvalidArgument)


async def test_of_a_filtered_topic_comes_what_is_selected_and_where_to_go_on(client) -> None:
    for topic in ("t", "u"):
        await client.create(topic, 1)
        await client.produce(numbered(topic, *range(40)), numbered(topic, 7, 7, 8))
    answer, bodies = await fetch(
        client, ("t", 0, 0), ("u", 0, 0), filters={"t": "n = 39"}, picks=True
    )
    assert {(one.topic, one.next) for one in answer.queues} == {("t", 43), ("u", -1)}
    assert len(bodies) == 43
    (picked,) = answer.picked
    assert [(record.offset, record.body) for record in picked_records(picked)] == [(39, b"39")]


async def test_a_client_that_knows_no_picks_gets_the_batches_that_have_a_match(client) -> None:
    await client.create("t", 1)
    await client.produce(numbered("t", *range(40)), numbered("t", 7, 7, 8))
    answer, bodies = await fetch(client, ("t", 0, 0), filters={"t": "n = 39"})
    assert (answer.picked, len(bodies), answer.queues[0].next) == ([], 40, 43)


async def test_a_filtered_fetch_goes_on_past_what_is_not_selected(client) -> None:
    await client.create("t", 1)
    await client.produce(numbered("t", 1, 2, 3))
    answer, bodies = await fetch(client, ("t", 0, 0), filters={"t": "n > 5"})
    assert ([(one.end, one.next) for one in answer.queues], bodies) == ([(3, 3)], [])


async def test_a_filtered_fetch_looks_at_more_than_it_brings(client) -> None:
    await client.create("t", 1)
    await client.produce(*(numbered("t", number, number) for number in range(3)))
    answer, bodies = await fetch(client, ("t", 0, 0), bytes_max=1, filters={"t": "n = 2"})
    assert ([one.next for one in answer.queues], bodies) == ([6], [b"2", b"2"])


async def test_a_filtered_fetch_passes_over_no_more_than_it_looked_at(start, connect) -> None:
    client = await connect(await start(scan_bytes_max=1))
    await client.create("t", 1)
    await client.produce(*(numbered("t", number, number) for number in range(3)))
    answer, bodies = await fetch(client, ("t", 0, 0), filters={"t": "n = 2"})
    assert ([one.next for one in answer.queues], bodies) == ([2], [])
    answer, bodies = await fetch(client, ("t", 0, 4), filters={"t": "n = 2"})
    assert ([one.next for one in answer.queues], bodies) == ([6], [b"2", b"2"])


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_long_backlog_of_which_little_is_wanted_is_looked_through_by_others(
    start, connect, until
) -> None:
    broker = await start()
    client = await connect(broker)
    await client.create("t", 1)
    await client.produce(*(numbered("t", *range(40)) for _ in range(2_500)))
    workers = broker._workers
    jobs: list[int] = []
    early: list[int] = []

    def submit(job, submitted=workers.submit):
        (jobs if workers.ready() else early).append(job.entries[0].base)
        return submitted(job)

    workers.submit = submit

    async def read() -> list[int]:
        found, offset = [], 0
        while offset < 100_000:
            answer, bodies = await fetch(
                client, ("t", 0, offset), filters={"t": "n = 39"}, picks=True
            )
            assert bodies == []
            for one in answer.picked:
                found += [record.offset for record in picked_records(one)]
            (queue,) = answer.queues
            assert queue.next > offset
            offset = queue.next
        return found

    # Nothing waits for a process that is being started.
    assert await read() == list(range(39, 100_000, 40))
    await until(workers.ready)
    jobs.clear()
    assert await read() == list(range(39, 100_000, 40))
    # Each job begins where the one before ended, before anybody has asked for it.
    assert len(jobs) > 1
    assert early == []
    pids = workers.pids
    await broker.aclose()
    assert pids
    assert not any(map(is_there, pids))


async def test_an_answer_stays_within_the_frame_limit(start, connect, batch) -> None:
    limit = 128 << 10
    broker = await start(frame_bytes_max=limit)
    client = await connect(broker)
    await client.create("t", 3)
    for number in range(3):
        await client.produce(batch("t", number, bytes(60_000)))
    places = [("t", number, 0) for number in range(3)]
    body = await client.ask(RequestCode.FETCH, request(*places, bytes_max=1 << 30))
    assert len(body) + 12 <= limit
    assert len(opened(body)[1]) == 1


async def test_a_fetch_of_a_client_that_does_not_read_waits_until_it_does(
    start, connect, batch, parked, until
) -> None:
    broker = await start(outgoing_bytes_max=1 << 20)
    client, slow = await connect(broker), await connect(broker, "slow")
    await client.create("t", 2)
    await client.produce(batch("t", 0, bytes(900_000)))
    # The last of these parks; the others fill the sockets and then the broker's limit.
    waits = slow.send(RequestCode.FETCH, request(("t", 1, 0)))
    await parked(broker)
    slow.writer.transport.pause_reading()
    fills = [slow.send(RequestCode.FETCH, request(("t", 0, 0))) for _ in range(20)]
    connection = broker._state.clients["slow"]
    await until(lambda: connection.congested)
    await client.produce(batch("t", 1, b"late"))
    await client.ask(RequestCode.DESCRIBE_BROKER)
    assert len(broker._state.long_poll) == 1
    slow.writer.transport.resume_reading()
    for correlation in fills:
        assert len(opened((await slow.answer(correlation)).body)[1]) == 1
    assert opened((await slow.answer(waits)).body)[1] == [b"late"]


async def test_a_read_from_the_disk_is_answered_later_and_delays_no_other_client(
    start, connect, batch, monkeypatch, parked
) -> None:
    broker = await start()
    files, gate = broker._state.store._files, threading.Event()
    client, other = await connect(broker, "a"), await connect(broker, "b")
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    read = files.read

    def slow(fd: int, at: int, length: int) -> bytes:
        assert threading.current_thread() is not threading.main_thread()
        assert gate.wait(20)
        return read(fd, at, length)

    monkeypatch.setattr(files, "read_cached", lambda *place: None)
    monkeypatch.setattr(files, "read", slow)
    asked = client.send(RequestCode.FETCH, encode(request(("t", 0, 0), wait_ms=0)))
    await parked(broker)
    await other.produce(batch("t", 0, b"b"))
    gate.set()
    assert opened((await client.answer(asked)).body)[1] == [b"a"]
    assert await fetch(other, ("t", 0, 1)) == (FetchAnswer([FetchedQueue("t", 0, 0, 2)]), [b"b"])


@pytest.mark.parametrize("filters", [{}, {"t": "n > 0"}])
async def test_of_a_paused_group_nothing_is_there_until_it_goes_on(
    broker, client, connect, parked, filters: dict[str, str]
) -> None:
    await client.create("t", 2)
    await client.produce(numbered("t", 1, 2))
    mine = replace(request(("t", 0, 0), ("t", 1, 7), filters=filters), group="g")
    waiting = await connect(broker, "waiting")
    await client.ask(RequestCode.SET_GROUP, SetGroup("g", "off"))
    none = opened(await client.ask(RequestCode.FETCH, replace(mine, wait_ms=0)))
    assert none == (FetchAnswer([]), [])
    late = waiting.send(RequestCode.FETCH, mine)
    await parked(broker)
    # What comes while it waits is not for it either; others get all.
    await client.produce(numbered("t", 3))
    assert len(broker._state.long_poll) == 1
    for other in ("", "h"):
        one = replace(request(("t", 0, 0), filters=filters), group=other)
        assert opened(await client.ask(RequestCode.FETCH, one))[1] == [b"1", b"2", b"3"]
    await client.ask(RequestCode.SET_GROUP, SetGroup("g", "on"))
    answer, bodies = opened((await waiting.answer(late)).body)
    assert bodies == [b"1", b"2", b"3"]
    # Only then it is told what is wrong with its request.
    assert ResponseCode.OFFSET_OUT_OF_RANGE in {queue.code for queue in answer.queues}


async def test_a_paused_fetch_runs_out_as_any_other(client) -> None:
    await client.create("t", 1)
    await client.produce(numbered("t", 1))
    await client.ask(RequestCode.SET_GROUP, SetGroup("g", "off"))
    mine = replace(request(("t", 0, 0), wait_ms=1), group="g")
    assert opened(await client.ask(RequestCode.FETCH, mine)) == (FetchAnswer([]), [])


async def test_a_paused_group_owes_nothing_to_quotas_while_it_waits(
    broker, client, connect, parked
) -> None:
    await client.create("t", 1)
    await client.ask(RequestCode.SET_QUOTA, SetQuota("topic", "t", Rates(fetch_messages=1)))
    await client.ask(RequestCode.SET_GROUP, SetGroup("g", "off"))
    waiting = await connect(broker, "waiting")
    late = waiting.send(RequestCode.FETCH, replace(request(("t", 0, 0)), group="g"))
    await parked(broker)
    await client.produce(numbered("t", 1, 2))
    assert len(broker._state.long_poll) == 1
    await client.ask(RequestCode.SET_GROUP, SetGroup("g", "on"))
    assert opened((await waiting.answer(late)).body)[1] == [b"1", b"2"]


def hide_all(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the broker show heads alone."""
    no_audit: Any = None
    guard = Guard(None, lambda _: 1, no_audit)
    monkeypatch.setattr(guard, "hides", lambda *_: True)
    monkeypatch.setattr(broker._state, "guard", guard)


async def test_heads_are_fetched_without_group_and_filters(client) -> None:
    for asked in (
        Fetch([FetchFrom("t", 0, 0)], 1, 0, "g", heads=True),
        Fetch([FetchFrom("t", 0, 0)], 1, 0, filters=[TopicFilter("t", "n = 1")], heads=True),
    ):
        with pytest.raises(InvalidArgument, match="without group and filters"):
            await client.ask(RequestCode.FETCH, asked)


async def test_heads_are_whole_messages_where_nothing_is_hidden(client) -> None:
    await client.create("t", 1)
    await client.produce(numbered("t", 1))
    asked = Fetch([FetchFrom("t", 0, 0)], 1 << 20, 0, heads=True)
    assert opened(await client.ask(RequestCode.FETCH, asked))[1] == [b"1"]


async def test_a_fetch_that_waits_for_heads_gets_no_body(
    broker, connect, client, parked, monkeypatch
) -> None:
    await client.create("t", 1)
    hide_all(broker, monkeypatch)
    reader = await connect(broker, "reader")
    asked = Fetch([FetchFrom("t", 0, 0)], 1 << 20, LONG_MS, heads=True)
    correlation = reader.send(RequestCode.FETCH, asked)
    await parked(broker)
    await client.produce(numbered("t", 1, 2))
    answer = (await reader.answer(correlation)).body
    _, batches = decode_fetch_answer(answer)
    (batch,) = split_batches(batches)
    assert [one.headers for one in decode_records(batch)] == [{"%head": "1"}] * 2
    assert opened(answer)[1] == [b"", b""]


async def test_all_queues_of_one_answer_share_the_room_for_heads(
    client, broker, batch, monkeypatch
) -> None:
    queues = 5
    await client.create("t", queues)
    await client.produce(*(batch("t", number, b"a", b"b") for number in range(queues)))
    hide_all(broker, monkeypatch)
    made, sizes = [], []
    monkeypatch.setattr(module, "head_of", lambda one: made.append(1) or heads.head_of(one))
    monkeypatch.setattr(
        type(broker._state), "note_fetched", lambda _, *told: sizes.append(told[-1])
    )
    monkeypatch.setattr(heads, "HEAD_RECORDS_MAX", 5)
    places = [FetchFrom("t", number, 0) for number in range(queues)]
    seen = set()
    for _ in range(4 * queues):
        made.clear()
        body = await client.ask(RequestCode.FETCH, Fetch(places, 1 << 20, 0, heads=True))
        answer, _ = opened(body)
        assert len(made) == len(answer.queues) == 2
        seen |= {one.queue_id for one in answer.queues}
    assert seen == set(range(queues))
    # What was read counts, however few bytes its heads have.
    monkeypatch.setattr(heads, "HEAD_RECORDS_MAX", 1)
    await client.produce(batch("t", 0, bytes(9_000)))
    sizes.clear()
    await client.ask(RequestCode.FETCH, Fetch([FetchFrom("t", 0, 2)], 1 << 20, 0, heads=True))
    assert sizes[0] > 9_000
