import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from headrace_mq._net.link import Link
from headrace_mq.client.fetch import fetcher as pulling_module
from headrace_mq.errors import (
    DataCorrupt,
    FormatTooNew,
    InvalidArgument,
    MalformedRequest,
    QueueNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_placed, read_header
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchAnswer,
    FetchedQueue,
    FetchFrom,
    Picked,
    TopicFilter,
    decode,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.filter.picks import Pick, picked
from headrace_mq.protocol.sparse import moved, thinned

FETCH = RequestCode.FETCH
MISSING = "messages cannot be read and are left out"
A, B = QueueRef("t", 0), QueueRef("t", 1)
Until = Callable[[Callable[[], object]], Any]


@pytest.fixture
async def watched(watch: Any, link: Link, clock: Any) -> Any:
    return watch(link, clock)


def asked(request: Any) -> dict[QueueRef, int]:
    fetch = decode(Fetch, request.body)
    return {QueueRef(item.topic, item.queue_id): item.offset for item in fetch.queues}


def answer(
    request: Any,
    *batches: bytes,
    states: list[FetchedQueue] | None = None,
    picks: list[Picked] | None = None,
) -> None:
    request.answer(encode_fetch_answer(FetchAnswer(states or [], picks or [])), *batches)


def fetches(broker: Any) -> list[dict[QueueRef, int]]:
    return [asked(request) for request in broker.seen if request.code == FETCH]


async def test_one_fetch_asks_for_all_queues(broker: Any, watched: Any) -> None:
    broker.held = {FETCH}
    watched.start(A, B, offset=5)
    request = await broker.next(FETCH)
    assert decode(Fetch, request.body) == Fetch(
        queues=[FetchFrom("t", 0, 5), FetchFrom("t", 1, 5)],
        bytes_max=1 << 20,
        wait_ms=15_000,
        group="g",
    )


async def test_stored_records_and_later_ones_arrive(broker: Any, watched: Any) -> None:
    broker.append(A, [b"a", b"b"])
    watched.start(A, B)
    assert [record.body for record in await watched.poll()] == [b"a", b"b"]
    broker.append(B, [b"c"])
    (record,) = await watched.poll()
    assert (record.queue, record.offset, record.body) == (B, 0, b"c")
    assert fetches(broker)[:2] == [{A: 0, B: 0}, {A: 2, B: 0}]


async def test_a_batch_that_begins_below_the_asked_offset_is_trimmed(
    broker: Any, watched: Any
) -> None:
    broker.append(A, [b"%d" % n for n in range(5)])
    watched.start(A, offset=3)
    assert await watched.offsets() == [3, 4]


async def test_a_fetch_that_was_put_off_is_made_when_it_is_wanted(
    watch: Any, broker: Any, link: Link, clock: Any
) -> None:
    broker.append(A, [b"a"])
    (watched := watch(link, clock, fetch_gather_ms=3_600_000)).start(A)
    await watched.poll()
    watched.pulling.want()
    broker.append(A, [b"b"])
    assert await watched.offsets() == [1]


async def test_a_new_queue_does_not_wait_for_the_parked_fetch(broker: Any, watched: Any) -> None:
    broker.held = {FETCH}
    watched.start(A)
    parked = await broker.next(FETCH)
    watched.start(B)
    assert asked(await broker.next(FETCH)) == {B: 0}
    answer(parked, broker.append(A, [b"a"]))
    assert await watched.offsets() == [0]
    assert asked(await broker.next(FETCH)) == {A: 1}


async def test_seeking_does_not_wait_for_the_parked_fetch_whose_answer_is_dropped(
    broker: Any, watched: Any
) -> None:
    broker.held = {FETCH}
    first = broker.append(A, [b"a"] * 3)
    watched.start(A, offset=3)
    parked = await broker.next(FETCH)
    watched.shares.seek(A, 1)
    watched.pulling.pull_soon()
    again = await broker.next(FETCH)
    assert asked(again) == {A: 1}
    answer(parked, broker.append(A, [b"late"]))
    answer(again, first)
    assert await watched.offsets() == [1, 2]
    assert asked(await broker.next(FETCH)) == {A: 3}


async def test_a_revoked_queues_records_are_dropped(
    broker: Any, watched: Any, until: Until
) -> None:
    broker.held = {FETCH}
    watched.start(A, B)
    parked = await broker.next(FETCH)
    watched.shares.assign([B])
    answer(parked, broker.append(A, [b"a"]), broker.append(B, [b"b"]))
    assert [record.queue for record in await watched.poll()] == [B]


async def test_a_full_queue_is_left_out_until_it_has_room(
    watch: Any, broker: Any, link: Link, clock: Any
) -> None:
    watched = watch(link, clock, in_flight_max=2)
    broker.append(A, [b"a", b"b"])
    broker.held = {FETCH}
    watched.start(A, B)
    broker.serve(await broker.next(FETCH))
    assert await watched.offsets() == [0, 1]
    assert asked(await broker.next(FETCH)) == {B: 0}
    assert watched.shares.finish(A, 1)
    watched.pulling.pull_soon()
    assert asked(await broker.next(FETCH)) == {A: 2}


async def test_no_fetch_is_sent_while_every_queue_is_full(
    watch: Any, broker: Any, link: Link, clock: Any
) -> None:
    watched = watch(link, clock, in_flight_max=1)
    broker.append(A, [b"a"])
    watched.start(A)
    await watched.poll()
    await asyncio.sleep(0)
    assert len(fetches(broker)) == 1


async def test_many_small_fetches_are_replaced_by_one_for_everything(
    broker: Any, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling_module, "FETCHES_MAX", 2)
    broker.held = {FETCH}
    queues = [QueueRef("t", number) for number in range(4)]
    requests = []
    for queue in queues:
        watched.start(queue)
        requests.append(await broker.next(FETCH))
    assert [len(asked(request)) for request in requests] == [1, 1, 3, 1]
    # What the replaced fetch brings counts, and does not make its queue free to ask for.
    answer(requests[0], broker.append(queues[0], [b"a"]))
    assert await watched.offsets() == [0]
    answer(requests[2])
    following = await broker.next(FETCH)
    assert asked(following) == {queues[0]: 1, queues[1]: 0, queues[2]: 0}


async def test_a_full_queue_left_out_of_the_replacement_is_asked_for_when_its_fetch_ends(
    watch: Any, broker: Any, link: Link, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling_module, "FETCHES_MAX", 1)
    watched = watch(link, clock, in_flight_max=1)
    broker.held = {FETCH}
    watched.start(A)
    first = await broker.next(FETCH)
    share = watched.shares.get(A)
    share.window.take([0], [1])
    share.full = True
    watched.start(B)
    assert asked(await broker.next(FETCH)) == {B: 0}
    watched.shares.finish(A, 0)
    answer(first)
    assert A in asked(await broker.next(FETCH))


async def test_no_more_fetches_than_the_limit_are_parked(
    broker: Any, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling_module, "FETCHES_PARKED_MAX", 2)
    broker.held = {FETCH}
    watched.start(A)
    first = await broker.next(FETCH)
    watched.start(B)
    await broker.next(FETCH)
    watched.shares.seek(A, 7)
    watched.pulling.pull_soon()
    await asyncio.sleep(0)
    answer(first, broker.append(B, [b"b"]))
    assert asked(await broker.next(FETCH)) == {A: 7}
    assert broker.count(FETCH) == 3


async def test_more_queues_than_one_fetch_may_name_are_asked_for_in_several(
    broker: Any, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling_module, "QUEUES_PER_FETCH_MAX", 2)
    broker.held = {FETCH}
    watched.start(*[QueueRef("t", number) for number in range(5)])
    assert [len(asked(await broker.next(FETCH))) for _ in range(3)] == [2, 2, 1]


async def test_an_offset_that_was_deleted_by_age_is_skipped_to_the_first(
    broker: Any, watched: Any
) -> None:
    broker.first[A] = 10
    broker.append(A, [b"a"])
    watched.start(A, offset=3)
    assert await watched.offsets() == [10]


async def test_an_offset_beyond_the_end_goes_back_to_the_end(
    broker: Any, watched: Any, until: Until
) -> None:
    broker.append(A, [b"a"])
    watched.start(A, offset=9)
    await until(lambda: fetches(broker)[-1:] == [{A: 1}])
    broker.append(A, [b"b"])
    assert await watched.offsets() == [1]


async def test_offsets_that_are_missing_in_the_middle_are_passed_over(
    broker: Any, watched: Any
) -> None:
    broker.append(A, [b"a"])
    broker.append(A, [b"b"], base=5)
    watched.start(A)
    assert await watched.offsets() == [0, 5]


# In turn: magic, format version, length, base offset, queue number, and the payload's last byte.
@pytest.mark.parametrize("at", [0, 4, 8, 20, 60, -1])
async def test_a_damaged_batch_stops_its_own_queue_and_is_raised_once(
    broker: Any, watched: Any, at: int
) -> None:
    good = broker.append(A, [b"good"])
    bad = bytearray(broker.append(A, [b"bad"]))
    bad[at] ^= 7
    after, other = broker.append(A, [b"after"]), broker.append(B, [b"other"])
    broker.held = {FETCH}
    watched.start(A, B)
    answer(await broker.next(FETCH), good, bytes(bad), after, other)
    assert [record.body for record in await watched.poll()] == [b"good"]
    alone = [await broker.next(FETCH) for _ in "AB"]
    assert [asked(request) for request in alone] == [{A: 1}, {B: 0}]
    answer(alone[0], bytes(bad), after)
    answer(alone[1], other)
    assert [record.body for record in await watched.poll()] == [b"other"]
    assert asked(await broker.next(FETCH)) == {B: 1}
    (error,) = watched.errors
    assert isinstance(error, FormatTooNew if at == 4 else DataCorrupt)
    assert "queue t/0 cannot be read from offset 1" in str(error)
    watched.shares.seek(A, 2)
    watched.pulling.pull_soon()
    answer(await broker.next(FETCH), after)
    assert await watched.offsets() == [2]


async def test_damage_on_the_way_costs_one_more_fetch_and_nothing_else(
    broker: Any, watched: Any
) -> None:
    good = broker.append(A, [b"a"])
    broker.held = {FETCH}
    watched.start(A, B)
    answer(await broker.next(FETCH), good[:-1] + b"?")
    alone = [await broker.next(FETCH) for _ in "AB"]
    answer(alone[0], good)
    assert await watched.offsets() == [0]
    answer(alone[1], broker.append(B, [b"b"]))
    assert await watched.offsets() == [0]
    assert watched.errors == []
    assert not any(share.alone for share in watched.shares.fetchable(asked=True))


async def test_an_answer_that_cannot_be_read_is_logged_and_asked_for_again(
    broker: Any, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling_module, "TROUBLE_PAUSE_MS", 1)
    broker.held = {FETCH}
    watched.start(A)
    (await broker.next(FETCH)).answer(b"?")
    answer(await broker.next(FETCH), broker.append(A, [b"a"]))
    assert await watched.offsets() == [0]
    assert [type(error) for error in watched.errors] == [MalformedRequest]


async def test_a_refused_fetch_is_repeated_after_a_pause(
    broker: Any, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling_module, "TROUBLE_PAUSE_MS", 1)
    broker.held = {FETCH}
    watched.start(A)
    (await broker.next(FETCH)).refuse(InvalidArgument("no"))
    gone = [FetchedQueue("t", 0, 0, 0, QueueNotFound.code, "no such queue")]
    answer(await broker.next(FETCH), states=gone)
    answer(await broker.next(FETCH), broker.append(A, [b"a"]))
    assert await watched.offsets() == [0]
    assert watched.errors == []


async def test_an_empty_answer_that_came_at_once_is_followed_by_a_pause(
    broker: Any, watched: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def note(delay: float, *call: Any) -> Any:
        if call[0] == watched.pulling._release:
            paused.append(delay)
            return call_later(0, *call)
        return call_later(delay, *call)

    monkeypatch.setattr(loop, "call_later", note)
    broker.held = {FETCH}
    watched.start(A)
    answer(await broker.next(FETCH))
    request = await broker.next(FETCH)
    assert paused == [0.1]
    clock.time_ms += 15_000
    answer(request)
    await broker.next(FETCH)
    assert paused == [0.1]


def picks(queue: QueueRef, *offsets: int) -> Picked:
    none = msgspec.Raw(b"\x80")
    return picked(queue, [Pick(one, "x", "x", none, b"%d" % one, 1, 1, 1) for one in offsets])


async def test_picked_messages_and_batches_are_taken_in_order(
    watch: Any, broker: Any, link: Link, clock: Any
) -> None:
    watched = watch(link, clock, "_tag IS NULL")
    broker.held = {FETCH}
    watched.start(A, B)
    request = await broker.next(FETCH)
    asks = decode(Fetch, request.body)
    assert (asks.filters, asks.picks) == ([TopicFilter("t", "_tag IS NULL")], True)
    places = [(A, 2, 10), (A, 1, 20), (B, 1, 5)]
    batches = [broker.append(queue, [b"x"] * many, base=at) for queue, many, at in places]
    states = [FetchedQueue("t", 0, 0, 40, next=30), FetchedQueue("t", 1, 0, 40, next=40)]
    found = [picks(A, 3, 7), picks(A, 15), picks(A, 21, 29), picks(B, 1)]
    answer(request, *batches, states=states, picks=found)
    taken = [(record.queue, record.offset) for record in await watched.poll()]
    assert [at for queue, at in taken if queue == A] == [3, 7, 10, 11, 15, 20, 21, 29]
    assert [at for queue, at in taken if queue == B] == [1, 5]
    assert asked(await broker.next(FETCH)) == {A: 30, B: 40}


async def test_an_answer_that_only_leads_on_is_followed_at_once(
    watch: Any, broker: Any, link: Link, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling_module, "EMPTY_PAUSE_MS", 3_600_000)
    watched = watch(link, clock, "_tag = 'x'")
    broker.held = {FETCH}
    watched.start(A)
    for offset in range(0, 500, 100):
        request = await broker.next(FETCH)
        assert asked(request) == {A: offset}
        answer(request, states=[FetchedQueue("t", 0, 0, 1_000, next=offset + 100)])


async def test_damaged_picks_stop_their_queue(
    watch: Any, broker: Any, link: Link, clock: Any
) -> None:
    watched = watch(link, clock, "_tag = 'x'")
    broker.held = {FETCH}
    watched.start(A)
    sound = picks(A, 3)
    answer(await broker.next(FETCH), picks=[Picked("t", 0, sound.checksum ^ 1, sound.messages)])
    await watched.news.wait()
    assert [type(error) for error in watched.errors] == [DataCorrupt]


async def test_after_a_lost_connection_it_waits_to_be_started_again(
    broker: Any, watched: Any, link: Link, until: Until
) -> None:
    watched.start(A)
    await until(lambda: fetches(broker))
    watched.shares.suspend()
    broker.drop()
    await until(lambda: broker.count(RequestCode.HELLO) == 2)
    await until(lambda: link.is_ready)
    watched.start(A)
    broker.append(A, [b"a"])
    assert await watched.offsets() == [0]


async def test_a_stopped_one_asks_for_nothing_and_takes_nothing(
    broker: Any, watched: Any, link: Link
) -> None:
    broker.held = {FETCH}
    watched.start(A)
    request = await broker.next(FETCH)
    watched.pulling.stop()
    answer(request, broker.append(A, [b"a"]))
    watched.start(B)
    await link.request(RequestCode.DESCRIBE_TOPICS, b"\x91\x90", timeout_ms=5_000)
    assert watched.shares.deliver() == []
    assert broker.count(FETCH) == 1


async def test_columns_are_checked_and_taken_where_the_queue_stands(
    broker: Any, watched: Any
) -> None:
    watched.shares.deliver_columns()
    broker.append(A, [b"a", b"b", b"c"])
    watched.start(A, offset=1)
    while not (found := watched.shares.deliver_columns()):
        watched.news.clear()
        await watched.news.wait()
    assert [(list(run.offsets), list(run.bodies)) for run in found] == [([1, 2], [b"b", b"c"])]


async def test_a_damaged_batch_stops_its_queue_in_columns_too(broker: Any, watched: Any) -> None:
    watched.shares.deliver_columns()
    broker.held = {FETCH}
    watched.start(A)
    request = await broker.next(FETCH)
    batch = bytearray(broker.append(A, [b"whole"]))
    batch[-1] ^= 1
    answer(request, bytes(batch))
    await watched.news.wait()
    (error,) = watched.errors
    assert isinstance(error, DataCorrupt)


def thin(batch: bytes, kept: list[int], *, gap: int = 0) -> bytes:
    """What a compaction leaves of a batch, behind so many offsets that hold nothing."""
    header = read_header(batch)
    left = thinned(batch, header, *decode_placed(batch, header), kept)
    return bytes(moved(left, read_header(left), position=header.position, gap=gap))


@pytest.mark.parametrize("in_columns", [False, True], ids=["records", "columns"])
async def test_records_that_a_compaction_took_out_are_passed_over_and_are_no_loss(
    broker: Any, watched: Any, in_columns: bool
) -> None:
    sparse = thin(broker.append(A, [b"%d" % n for n in range(5)], base=3), [1, 3], gap=3)
    empty = thin(broker.append(A, [b"x", b"y"]), [])
    broker.held = {FETCH}
    watched.shares.in_columns = in_columns
    watched.start(A)
    with capture_logs() as logs:
        answer(await broker.next(FETCH), sparse, empty)
        assert asked(await broker.next(FETCH)) == {A: 10}
    assert MISSING not in [line["event"] for line in logs]
    if in_columns:
        runs = watched.shares.deliver_columns()
        found = [
            (offset, body)
            for run in runs
            for offset, body in zip(run.offsets, run.bodies, strict=True)
        ]
    else:
        found = [(record.offset, record.body) for record in await watched.poll()]
    assert found == [(4, b"1"), (6, b"3")]


async def test_a_gap_that_no_compaction_explains_is_damage(broker: Any, watched: Any) -> None:
    sparse = thin(broker.append(A, [b"a", b"b"], base=3), [0], gap=2)
    broker.held = {FETCH}
    watched.start(A)
    with capture_logs() as logs:
        answer(await broker.next(FETCH), sparse)
        assert asked(await broker.next(FETCH)) == {A: 5}
    assert MISSING in [line["event"] for line in logs]
