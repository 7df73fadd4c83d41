from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.client.batch.batch import Place
from headrace_mq.client.batch.message_size import FRAME_OVERHEAD_BYTES, message_bytes_max
from headrace_mq.client.producer.queue_sender import FOLLOW_BYTES
from headrace_mq.client.producer.route import queue_for_key
from headrace_mq.client.producer.send_buffer import ALONE_REQUESTS, DEPART_BYTES, Outbox
from headrace_mq.errors import (
    BrokerStopping,
    Closed,
    InvalidArgument,
    MalformedRequest,
    SendTimeout,
    StoreFull,
    TopicNotFound,
)
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import decode_records, read_header, split_batches
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ProducerSettings

PRODUCE = RequestCode.PRODUCE
Until = Callable[[Callable[[], object]], Any]


def make(link: Link, clock: Any, *, want: list[str] | None = None, **settings: Any) -> Outbox:
    outbox = Outbox(
        link,
        ProducerSettings(**settings),
        clock,
        selector=lambda message, queues: int(message.key or 0),
        want_route=(want if want is not None else []).append,
    )
    link._on_ready = outbox.resume
    return outbox


def message(body: bytes = b"x", queue: int = 0, **fields: Any) -> Message:
    return Message(**{"topic": "t", "body": body, "key": str(queue)} | fields)


def put(outbox: Outbox, body: bytes = b"x", queue: int = 0) -> Place:
    place = line_up(outbox, body, queue)
    assert isinstance(place, tuple)
    return place


def line_up(outbox: Outbox, body: bytes = b"x", queue: int = 0) -> Any:
    one = message(body, queue)
    return outbox.place(one)


def contents(request: Any) -> list[list[bytes]]:
    """The bodies in each batch of a PRODUCE request."""
    return [[r.body for r in decode_records(b)] for b in split_batches(request.body)]


@pytest.fixture
async def outbox(link: Link, clock: Any) -> Outbox:
    outbox = make(link, clock, reconnect_ms_min=1, reconnect_ms_max=2)
    outbox.open_route("t", 4)
    return outbox


async def test_one_request_carries_a_batch_of_every_queue(
    broker: Any, outbox: Outbox, until: Until
) -> None:
    places = [put(outbox, b"%d" % number, queue=number % 3) for number in range(6)]
    await outbox.drained()
    (produced,) = [request for request in broker.seen if request.code == PRODUCE]
    assert contents(produced) == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]
    assert [batch.result(number) for batch, number in places] == [
        SendResult(QueueRef("t", queue), offset) for offset in range(2) for queue in range(3)
    ]


async def test_one_batch_per_queue_is_on_its_way_and_the_rest_goes_together(
    broker: Any, outbox: Outbox
) -> None:
    broker.held = {PRODUCE}
    put(outbox, b"a")
    first = await broker.next(PRODUCE)
    for body in (b"b", b"c"):
        put(outbox, body)
    put(outbox, b"other", queue=1)
    other = await broker.next(PRODUCE)
    broker.serve(first)
    second = await broker.next(PRODUCE)
    assert [contents(r) for r in (first, other, second)] == [[[b"a"]], [[b"other"]], [[b"b", b"c"]]]


async def test_a_message_behind_some_that_were_alone_leaves_at_once(
    broker: Any, outbox: Outbox
) -> None:
    for _ in range(ALONE_REQUESTS):
        put(outbox, b"alone")
        await outbox.drained()
    assert broker.count(PRODUCE) == ALONE_REQUESTS
    broker.held = {PRODUCE}
    put(outbox, b"second")
    # The loop has not turned: it is on its way, and nothing can be added to it.
    put(outbox, b"third")
    put(outbox, b"other", queue=1)
    second, other = await broker.next(PRODUCE), await broker.next(PRODUCE)
    broker.serve(second)
    third = await broker.next(PRODUCE)
    assert [contents(r) for r in (second, other, third)] == [
        [[b"second"]],
        [[b"other"]],
        [[b"third"]],
    ]
    broker.serve(third)
    broker.serve(other)
    await outbox.drained()
    # Nor does that hold on: several that came together make a request of their own.
    for number in range(3):
        put(outbox, b"%d" % number)
    assert contents(await broker.next(PRODUCE)) == [[b"0", b"1", b"2"]]


async def test_a_large_batch_departs_at_once_and_behind_it_the_other_queues_gather(
    broker: Any, outbox: Outbox
) -> None:
    broker.held = {PRODUCE}
    large, following = b"x" * DEPART_BYTES, b"y" * FOLLOW_BYTES
    for queue in (0, 1, 2, 0, 1, 2):
        put(outbox, large, queue=queue)
    put(outbox, following, queue=3)
    requests = [await broker.next(PRODUCE) for _ in range(2)]
    assert contents(requests[0]) == [[large]]
    assert sorted(contents(requests[1])) == [[large, large], [large, large], [following]]


async def test_requests_stay_below_the_frame_limit(broker: Any, clock: Any) -> None:
    broker.frame_bytes_max = 64 << 10
    link = Link(broker.address, client_id="small", settings=LinkSettings((1, 5)))
    await link.start(5_000)
    outbox = make(link, clock)
    outbox.open_route("t", 4)
    largest = message_bytes_max(broker.frame_bytes_max) - outbox.measure(message(b""))
    for queue in range(4):
        for _ in range(3):
            put(outbox, bytes(largest), queue)
    await outbox.drained()
    sizes = [len(request.body) for request in broker.seen if request.code == PRODUCE]
    assert len(sizes) == 12
    assert max(sizes) + FRAME_OVERHEAD_BYTES <= broker.frame_bytes_max
    with pytest.raises(ValueError, match=f"of {message_bytes_max(64 << 10) + 1} bytes is over"):
        put(outbox, bytes(largest + 1))
    await link.aclose()


async def test_after_a_lost_connection_the_same_bytes_are_sent_and_stored_once(
    broker: Any, outbox: Outbox
) -> None:
    broker.held = {PRODUCE}
    place = put(outbox, b"a")
    first = await broker.next(PRODUCE)
    first.answer = lambda *parts: None
    broker.serve(first)
    broker.drop()
    again = await broker.next(PRODUCE)
    assert again.body == first.body
    broker.serve(again)
    await outbox.drained()
    assert place[0].result(0) == SendResult(QueueRef("t", 0), 0, duplicate=True)
    assert len(broker.batches[QueueRef("t", 0)]) == 1


async def test_after_a_lost_connection_nothing_overtakes(broker: Any, outbox: Outbox) -> None:
    broker.held = {PRODUCE}
    put(outbox, b"a")
    await broker.next(PRODUCE)
    put(outbox, b"b")
    broker.drop()
    again = await broker.next(PRODUCE)
    assert contents(again) == [[b"a"]]
    broker.serve(again)
    assert contents(await broker.next(PRODUCE)) == [[b"b"]]


@pytest.mark.parametrize("error", [BrokerStopping("soon"), StoreFull("full")])
async def test_a_refusal_that_may_pass_is_met_with_the_same_bytes_again(
    broker: Any, outbox: Outbox, error: Any
) -> None:
    broker.held = {PRODUCE}
    place = put(outbox)
    first = await broker.next(PRODUCE)
    first.refuse(error)
    second = await broker.next(PRODUCE)
    second.answer(encode(ProduceAnswer([Produced("t", 0, -1, error.code, str(error))])))
    third = await broker.next(PRODUCE)
    assert first.body == second.body == third.body
    broker.serve(third)
    await outbox.drained()
    assert place[0].result(0).offset == 0


async def test_a_refused_batch_fails_alone_and_ends_its_sequence(
    broker: Any, outbox: Outbox
) -> None:
    broker.held = {PRODUCE}
    bad, good = put(outbox, b"bad"), put(outbox, b"good", queue=1)
    request = await broker.next(PRODUCE)
    request.answer(
        encode(
            ProduceAnswer([Produced("t", 0, -1, InvalidArgument.code, "no"), Produced("t", 1, 9)])
        )
    )
    await outbox.drained()
    with pytest.raises(InvalidArgument, match="no"):
        bad[0].result(0)
    assert good[0].result(0).offset == 9
    put(outbox, b"next")
    put(outbox, b"next", queue=1)
    following = [read_header(b) for b in split_batches((await broker.next(PRODUCE)).body)]
    assert [header.first_sequence for header in following] == [0, 1]
    assert following[0].producer_id != following[1].producer_id


async def test_a_refused_topic_is_looked_up_again(broker: Any, link: Link, clock: Any) -> None:
    wanted: list[str] = []
    outbox = make(link, clock, want=wanted)
    outbox.open_route("t", 1)
    broker.held = {PRODUCE}
    place = put(outbox)
    request = await broker.next(PRODUCE)
    request.answer(encode(ProduceAnswer([Produced("t", 0, -1, TopicNotFound.code, "gone")])))
    await outbox.drained()
    with pytest.raises(TopicNotFound):
        place[0].result(0)
    line_up(outbox)
    assert set(wanted) == {"t"}


@pytest.mark.parametrize("answer", [b"?", encode(ProduceAnswer([]))])
async def test_an_answer_that_cannot_be_understood_fails_its_batches(
    broker: Any, outbox: Outbox, answer: bytes
) -> None:
    broker.held = {PRODUCE}
    place = put(outbox)
    (await broker.next(PRODUCE)).answer(answer)
    await outbox.drained()
    with pytest.raises(MalformedRequest):
        place[0].result(0)


async def test_a_batch_that_is_not_acknowledged_in_time_is_given_up_and_the_next_one_goes(
    broker: Any, link: Link, clock: Any, until: Until
) -> None:
    outbox = make(link, clock, send_timeout_ms=100)
    outbox.open_route("t", 1)
    broker.held = {PRODUCE}
    late = put(outbox, b"late")
    first = await broker.next(PRODUCE)
    clock.time_ms += 90
    put(outbox, b"next")
    clock.time_ms += 10
    second = await broker.next(PRODUCE)
    with pytest.raises(SendTimeout, match="unknown outcome"):
        late[0].result(0)
    headers = [read_header(request.body) for request in (first, second)]
    assert [header.first_sequence for header in headers] == [0, 0]
    assert headers[0].producer_id != headers[1].producer_id
    # Both were stored in the end: the answer to the one given up is ignored, not misread.
    broker.serve(first)
    broker.serve(second)
    await outbox.drained()
    assert broker.end(QueueRef("t", 0)) == 2


async def test_messages_wait_for_room_in_the_order_they_came(
    broker: Any, link: Link, clock: Any
) -> None:
    outbox = make(link, clock, buffer_bytes_max=100)
    outbox.open_route("t", 1)
    broker.held = {PRODUCE}
    put(outbox, b"a")
    put(outbox, b"b")
    line = [line_up(outbox, body) for body in (b"c" * 60, b"d", b"e")]
    assert not any(isinstance(place, tuple) for place in line)
    assert contents(await broker.next(PRODUCE)) == [[b"a", b"b"]]
    broker.drop()
    broker.serve(await broker.next(PRODUCE))
    following = await broker.next(PRODUCE)
    assert contents(following) == [[b"c" * 60]]
    broker.serve(following)
    assert contents(await broker.next(PRODUCE)) == [[b"d", b"e"]]


async def test_a_message_larger_than_the_buffer_passes_when_it_is_alone(
    broker: Any, link: Link, clock: Any
) -> None:
    outbox = make(link, clock, buffer_bytes_max=100)
    outbox.open_route("t", 1)
    put(outbox, bytes(1_000))
    second = line_up(outbox, b"b")
    await outbox.drained()
    assert (await second)[0].result(0).offset == 1


async def test_a_sender_cancelled_in_the_line_takes_its_message_along(
    broker: Any, link: Link, clock: Any
) -> None:
    outbox = make(link, clock)
    line = [line_up(outbox, body) for body in (b"a", b"b", b"c")]
    line[0].cancel()
    line[1].cancel()
    outbox.open_route("t", 1)
    await outbox.drained()
    assert [contents(r) for r in broker.seen if r.code == PRODUCE] == [[[b"c"]]]


async def test_messages_wait_for_a_route_or_its_refusal(link: Link, clock: Any) -> None:
    wanted: list[str] = []
    outbox = make(link, clock, want=wanted)
    missing, known = message(topic="missing"), message(topic="known")
    refused = outbox.place(missing)
    waiting = outbox.place(known)
    assert set(wanted) == {"missing", "known"}
    outbox.refuse_route("missing", TopicNotFound("no such topic"))
    assert wanted[-1] == "known"
    outbox.open_route("known", 1)
    assert not isinstance(refused, tuple)
    assert not isinstance(waiting, tuple)
    with pytest.raises(TopicNotFound):
        await refused
    assert isinstance(await waiting, tuple)
    await outbox.drained()


async def test_a_message_that_waits_too_long_for_its_place_was_never_sent(
    broker: Any, link: Link, clock: Any
) -> None:
    outbox = make(link, clock, send_timeout_ms=100)
    waiting = line_up(outbox)
    clock.time_ms += 100
    with pytest.raises(SendTimeout, match="not sent within 100 ms"):
        await waiting
    await outbox.drained()
    assert broker.count(PRODUCE) == 0


async def test_abandoning_fails_everything_that_is_left(
    broker: Any, outbox: Outbox, link: Link
) -> None:
    broker.held = {PRODUCE}
    place = put(outbox)
    elsewhere = message(topic="unknown")
    waiting = outbox.place(elsewhere)
    await broker.next(PRODUCE)
    outbox.abandon(Closed("the producer was closed"))
    await outbox.drained()
    assert not isinstance(waiting, tuple)
    with pytest.raises(Closed):
        await waiting
    with pytest.raises(Closed):
        place[0].result(0)


async def test_a_selector_that_fails_for_a_waiting_message_fails_its_sender_alone(
    broker: Any, link: Link, clock: Any
) -> None:
    outbox = make(link, clock)
    bad, good = message(key="not a number"), message(b"good")
    places = [outbox.place(one) for one in (bad, good)]
    outbox.open_route("t", 1)
    with pytest.raises(ValueError, match="not a number"):
        await places[0]  # type: ignore[misc]  # a future: the route was not known
    await outbox.drained()
    assert [contents(r) for r in broker.seen if r.code == PRODUCE] == [[[b"good"]]]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": "sp ace"}, ValueError),
        ({"body": "text"}, TypeError),
        ({"key": "k" * 1_025}, ValueError),
        ({"tag": "ü" * 65}, ValueError),
        ({"tag": 5}, TypeError),
        ({"headers": {"n": 1}}, TypeError),
        ({"headers": {f"{n}": "" for n in range(65)}}, ValueError),
        ({"key": "\ud800"}, ValueError),
    ],
)
async def test_a_message_that_cannot_be_sent_is_refused_before_it_has_a_place(
    outbox: Outbox, fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        outbox.measure(message(**fields))


async def test_the_measure_is_never_below_what_is_sent(broker: Any, outbox: Outbox) -> None:
    one = message("ö".encode() * 40, headers={"ä": "x" * 300, "": ""}, tag="täg")
    size = outbox.measure(one)
    outbox.place(one)
    await outbox.drained()
    header = read_header(broker.batches[QueueRef("t", 0)][0])
    assert header.plain_bytes <= size


async def test_nothing_is_written_to_a_socket_that_is_full(
    broker: Any, link: Link, clock: Any, until: Until
) -> None:
    outbox = make(link, clock, batch_messages_max=1)
    outbox.open_route("t", 4)
    for peer in broker.peers:
        peer.transport.pause_reading()
    for queue in range(4):
        put(outbox, bytes(3 << 20), queue)
    await until(lambda: not link.is_ready)
    sent = sum(bool(lane.flight) for lane in outbox._lanes.values())
    assert 0 < sent < 4
    for peer in broker.peers:
        peer.transport.resume_reading()
    await until(lambda: link.is_ready)
    await outbox.drained()


async def test_messages_of_one_tick_are_born_together_and_no_others(
    broker: Any, link: Link, clock: Any
) -> None:
    outbox = make(link, clock)
    outbox._selector = None
    outbox.open_route("t", 1)
    for _ in range(3):
        for _ in range(2):
            clock.time_ms += 10
            put(outbox)
        await outbox.drained()
    batches = [
        batch
        for request in broker.seen
        if request.code == PRODUCE
        for batch in split_batches(request.body)
    ]
    born = [[record.born_at_ms for record in decode_records(batch)] for batch in batches]
    assert born == [[1_000, 1_000], [1_030, 1_030], [1_050, 1_050]]


async def test_a_key_that_came_before_keeps_its_queue_and_every_check(
    link: Link, clock: Any
) -> None:
    outbox = make(link, clock)
    outbox._selector = None
    outbox.open_route("t", 4)
    first, again = put(outbox, queue=7), put(outbox, queue=7)
    assert again == (first[0], 1)
    assert first[0].queue == QueueRef("t", queue_for_key("7", 4))
    for wrong in ({"body": "text"}, {"tag": None}, {"headers": {"n": None}}, {"key": []}):
        with pytest.raises(TypeError):
            outbox.place(message(queue=7, **wrong))
    with pytest.raises(ValueError, match="is over the broker's limit"):
        put(outbox, bytes(link.frame_bytes_max), queue=7)
    for fields in ({"tag": "t"}, {"headers": {"n": "v"}}):
        assert outbox.place(message(queue=7, **fields))[0] is first[0]
    await outbox.drained()
    # Queues were added: the rule may say another one now.
    keys = range(20)
    outbox.open_route("t", 5)
    assert [put(outbox, queue=key)[0].queue for key in keys] == [
        QueueRef("t", queue_for_key(str(key), 5)) for key in keys
    ]
    await outbox.drained()


async def test_a_key_that_came_before_waits_in_line_like_all_others(
    broker: Any, link: Link, clock: Any
) -> None:
    outbox = make(link, clock, buffer_bytes_max=100)
    outbox._selector = None
    outbox.open_route("t", 4)
    put(outbox, bytes(50))
    assert not isinstance(line_up(outbox, bytes(50)), tuple)
    assert not isinstance(line_up(outbox), tuple)
    await outbox.drained()
    assert contents(broker.seen[-1])[-1][-1] == b"x"


@pytest.mark.parametrize("order", [(0, 1, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1)])
async def test_tags_and_headers_stay_with_their_messages_among_those_that_have_none(
    broker: Any, link: Link, clock: Any, order: tuple[int, ...]
) -> None:
    outbox = make(link, clock)
    outbox._selector = None
    outbox.open_route("t", 1)
    marks: list[dict[str, Any]] = [{}, {"tag": "tag", "headers": {"name": "value"}}]
    for marked in (0, *order):
        outbox.place(message(**marks[marked]))
    await outbox.drained()
    (batch,) = split_batches(broker.seen[-1].body)
    assert [(r.tag, dict(r.headers)) for r in decode_records(batch)[1:]] == [
        ("tag", {"name": "value"}) if marked else ("", {}) for marked in order
    ]
