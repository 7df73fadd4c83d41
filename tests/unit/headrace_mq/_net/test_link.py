import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from headrace_mq._net import leader_watch
from headrace_mq._net import link as link_module
from headrace_mq._net.client_connection import ANSWER_BYTES_BEFORE_HELLO_MAX
from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.errors import (
    BrokerStopping,
    Closed,
    ConnectionLost,
    InvalidArgument,
    RequestTimeout,
    ResponseCode,
    UnsupportedVersion,
)
from headrace_mq.protocol.bodies import (
    ErrorAnswer,
    Heartbeat,
    Hello,
    HelloAnswer,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, Frame, FrameReader, encode_frame

PING = RequestCode.HEARTBEAT


class Server(asyncio.Protocol):
    """The far end: shakes hands by itself and lets the test answer the rest."""

    def __init__(self, far: "Far") -> None:
        self._far = far
        self._reader = FrameReader(1 << 30)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._far.connections += 1
        self._far.servers.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._far.servers.remove(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if frame.code == RequestCode.HELLO:
                self._far.hellos.append(decode(Hello, frame.body))
                self.transport.write(self._far.greet(frame))
            else:
                self._far.frames.put_nowait((self, frame))


class Far:
    def __init__(self, port: int) -> None:
        self.frames: asyncio.Queue[tuple[Server, Frame]] = asyncio.Queue()
        self.hellos: list[Hello] = []
        self.servers: list[Server] = []
        self.connections = 0
        self.epoch = 1
        self.refusals: list[tuple[int, str]] = []
        self.port = port

    def greet(self, frame: Frame) -> bytes:
        if self.refusals:
            code, sentence = self.refusals.pop(0)
            return answer(frame, encode(ErrorAnswer(sentence)), code)
        return answer(frame, encode(HelloAnswer("far", 1, self.epoch, 1 << 20)))

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Server(self), "127.0.0.1", self.port)

    async def stop(self) -> None:
        self.server.close()
        self.drop()
        await self.server.wait_closed()
        while self.servers:
            await asyncio.sleep(0)

    def drop(self) -> None:
        for server in self.servers:
            server.transport.abort()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def answer(frame: Frame, body: bytes = b"", code: int = ResponseCode.OK) -> bytes:
    return encode_frame(code, frame.correlation, body, flags=FLAG_ANSWER)


@pytest.fixture
async def far(free_port: Callable[[], int]) -> AsyncIterator[Far]:
    far = Far(free_port())
    await far.start()
    yield far
    await far.stop()


class Watched:
    """A link and the news it gave."""

    def __init__(self, far: Far, address: str = "") -> None:
        self.pushed: list[Frame] = []
        self.ready = asyncio.Event()
        self.down = asyncio.Event()
        self.link = Link(
            address or far.address,
            client_id="me",
            settings=LinkSettings((1, 5)),
            on_push=self.pushed.append,
            on_ready=self.ready.set,
            on_down=self.down.set,
        )


@pytest.fixture
async def watched(far: Far) -> AsyncIterator[Watched]:
    watched = Watched(far)
    await watched.link.start(5_000)
    yield watched
    await watched.link.aclose()


@pytest.fixture
def link(watched: Watched) -> Link:
    return watched.link


async def test_the_first_address_that_answers_is_used_and_the_others_when_it_is_away(
    free_port: Callable[[], int],
) -> None:
    first, second = Far(free_port()), Far(free_port())
    await second.start()
    down = asyncio.Event()
    link = Link(
        f"{first.address},{second.address}",
        client_id="me",
        settings=LinkSettings((1, 5)),
        on_down=down.set,
    )
    await link.start(5_000)
    assert (first.connections, second.connections) == (0, 1)
    await first.start()
    # The one that answered is asked first, also where the other one is there again.
    second.drop()
    await down.wait()
    asked = asyncio.create_task(link.request(PING, timeout_ms=60_000))
    server, frame = await second.frames.get()
    await second.stop()
    with pytest.raises(ConnectionLost):
        await asked
    asked = asyncio.create_task(link.request(PING, timeout_ms=60_000))
    server, frame = await first.frames.get()
    server.transport.write(answer(frame, b"moved"))
    assert bytes(await asked) == b"moved"
    await link.aclose()
    await first.stop()


async def test_a_silent_leader_is_left_for_the_one_that_leads_later_over_the_connection_that_asked(
    free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SILENT_MS", "UNANSWERED_MS", "CALM_LOOK_MS", "LOOK_MS"):
        monkeypatch.setattr(leader_watch, name, 1)
    silent, later = Far(free_port()), Far(free_port())
    later.epoch = 2
    later.refusals = [(ResponseCode.NOT_LEADER, "a replica")] * 5
    await silent.start()
    await later.start()
    # A pause before it connects again would be noticed.
    settings = LinkSettings((60_000, 60_000))
    link = Link(f"{silent.address},{later.address}", client_id="me", settings=settings)
    await link.start(5_000)
    with pytest.raises(ConnectionLost, match="another broker of the group leads"):
        await link.request(PING, timeout_ms=20_000)
    asked = asyncio.create_task(link.request(PING, timeout_ms=20_000))
    server, frame = await later.frames.get()
    server.transport.write(answer(frame, b"later"))
    assert bytes(await asked) == b"later"
    assert (link.connections, later.connections, len(later.hellos)) == (2, 1, 6)
    await link.aclose()
    await silent.stop()
    await later.stop()


@pytest.mark.parametrize("serves", [True, False])
async def test_an_old_leader_is_taken_only_where_no_place_serves_in_the_latest_epoch_that_was_seen(
    free_port: Callable[[], int], serves: bool
) -> None:
    old, later = Far(free_port()), Far(free_port())
    later.epoch = 2
    await later.start()
    watched = Watched(old, f"{old.address},{later.address}")
    await watched.link.start(5_000)
    await old.start()
    # The place that served is asked first, and is not there for a moment.
    later.refusals = [(ResponseCode.NOT_LEADER, "not now")] * (0 if serves else 1)
    watched.link._places.reverse()
    watched.ready.clear()
    later.drop()
    await watched.ready.wait()
    # Each place was asked once more, and one connection is left.
    assert (len(old.hellos), len(later.hellos)) == (1, 2)
    asked = asyncio.create_task(watched.link.request(PING, timeout_ms=60_000))
    server, frame = await (later if serves else old).frames.get()
    server.transport.write(answer(frame, b"here"))
    assert bytes(await asked) == b"here"
    assert watched.link.connections == 2
    await watched.link.aclose()
    await old.stop()
    await later.stop()


async def test_an_address_that_does_not_answer_is_asked_last_the_next_time(
    free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "CONNECT_TIMEOUT_MS", 100)
    mute, replica = Far(free_port()), Far(free_port())
    mute.greet = lambda _frame: b""  # type: ignore[method-assign]  # on purpose
    replica.refusals = [(ResponseCode.NOT_LEADER, "a replica")]
    await mute.start()
    await replica.start()
    link = Link(f"{mute.address},{replica.address}", client_id="me", settings=LinkSettings((1, 5)))
    await link.start(20_000)
    assert (mute.connections, replica.connections) == (1, 2)
    await link.aclose()
    await mute.stop()
    await replica.stop()


async def test_a_refusal_of_one_address_is_final(far: Far, free_port: Callable[[], int]) -> None:
    far.refusals = [(UnsupportedVersion.code, "update the client")]
    address = f"{far.address},127.0.0.1:{free_port()}"
    link = Link(address, client_id="me", settings=LinkSettings((1, 5)))
    with pytest.raises(UnsupportedVersion, match="update the client"):
        await link.start(5_000)


async def test_where_no_address_answers_all_are_named_with_their_reasons(
    free_port: Callable[[], int],
) -> None:
    one, other = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    link = Link(f"{one},{other}", client_id="me", settings=LinkSettings((1, 5)))
    told = rf"no broker answers at {one},{other} \({one}: .*111.*; {other}: .*111.*\): check"
    with pytest.raises(ConnectionLost, match=told):
        await link.start(500)


async def test_a_link_says_hello_with_its_client_id(far: Far, link: Link) -> None:
    assert link.is_up
    assert [hello.client_id for hello in far.hellos] == ["me"]
    assert link.frame_bytes_max == 1 << 20


async def test_an_error_answer_is_raised_as_its_exception(far: Far, link: Link) -> None:
    asked = asyncio.create_task(link.request(PING, timeout_ms=60_000))
    server, frame = await far.frames.get()
    server.transport.write(answer(frame, encode(ErrorAnswer("too many")), InvalidArgument.code))
    with pytest.raises(InvalidArgument, match="too many"):
        await asked


async def test_a_request_without_an_answer_times_out_and_a_late_answer_is_ignored(
    far: Far, link: Link
) -> None:
    with pytest.raises(RequestTimeout, match=f"no answer from {far.address} within 20 ms"):
        await link.request(PING, timeout_ms=20)
    server, late = await far.frames.get()
    asked = asyncio.create_task(link.request(PING, timeout_ms=60_000))
    _, frame = await far.frames.get()
    server.transport.write(answer(late, b"late") + answer(frame, b"right"))
    assert bytes(await asked) == b"right"


async def test_a_lost_connection_fails_what_waits_and_the_link_comes_back_with_the_same_name(
    far: Far, watched: Watched
) -> None:
    asked = asyncio.create_task(watched.link.request(PING, timeout_ms=60_000))
    await far.frames.get()
    watched.ready.clear()
    far.drop()
    with pytest.raises(ConnectionLost):
        await asked
    assert watched.down.is_set()
    await watched.ready.wait()
    assert [hello.client_id for hello in far.hellos] == ["me", "me"]


async def test_the_reason_that_the_broker_sends_before_it_closes_is_raised(
    far: Far, link: Link
) -> None:
    asked = asyncio.create_task(link.request(PING, timeout_ms=60_000))
    server, _ = await far.frames.get()
    body = encode(ErrorAnswer("a frame is too large; send smaller batches"))
    server.transport.write(encode_frame(ResponseCode.FRAME_TOO_LARGE, 0, body, flags=FLAG_ANSWER))
    server.transport.close()
    with pytest.raises(ConnectionLost, match="the broker closed it: a frame is too large; send"):
        await asked


async def test_a_request_submitted_when_the_connection_ends_fails(far: Far, link: Link) -> None:
    refused = asyncio.Event()

    def again(outcome: object) -> None:
        try:
            link.submit(PING, receive=again)
        except ConnectionLost:
            refused.set()

    link.submit(PING, receive=again)
    await far.frames.get()
    far.drop()
    await refused.wait()


async def test_a_request_waits_for_the_connection_to_come_back(far: Far, watched: Watched) -> None:
    await far.stop()
    await watched.down.wait()
    asked = asyncio.create_task(watched.link.request(PING, timeout_ms=60_000))
    await far.start()
    server, frame = await far.frames.get()
    server.transport.write(answer(frame, b"back"))
    assert bytes(await asked) == b"back"


async def test_a_request_without_a_connection_says_what_to_check(
    far: Far, watched: Watched
) -> None:
    await far.stop()
    await watched.down.wait()
    with pytest.raises(RequestTimeout, match=rf"no broker answers at {far.address}.*firewall"):
        await watched.link.request(PING, timeout_ms=20)
    await far.start()


async def test_starting_without_a_broker_says_what_to_check(free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    link = Link(address, client_id="me", settings=LinkSettings((1, 5)))
    with pytest.raises(ConnectionLost, match=rf"no broker answers at {address} .*is running"):
        await link.start(30)
    with pytest.raises(Closed):
        await link.request(PING, timeout_ms=60_000)


async def test_a_host_name_that_cannot_be_one_is_no_broker() -> None:
    link = Link("a..b:1", client_id="me", settings=LinkSettings((1, 5)))
    with pytest.raises(ConnectionLost, match=r"no broker answers at a\.\.b:1"):
        await link.start(50)


async def test_a_refused_version_is_raised_at_once(far: Far) -> None:
    far.refusals = [(UnsupportedVersion.code, "update the client")]
    link = Link(far.address, client_id="me", settings=LinkSettings((1, 5)))
    with pytest.raises(UnsupportedVersion, match="update the client"):
        await link.start(5_000)


async def test_a_broker_that_is_stopping_is_tried_again(far: Far) -> None:
    far.refusals = [(BrokerStopping.code, "soon")] * 2
    link = Link(far.address, client_id="me", settings=LinkSettings((1, 5)))
    await link.start(5_000)
    assert len(far.hellos) == 3
    await link.aclose()


async def test_ask_repeats_after_a_lost_connection_and_after_a_retriable_answer(
    far: Far, link: Link
) -> None:
    asked = asyncio.create_task(link.ask(TopicsAnswer, PING, Heartbeat(), timeout_ms=60_000))
    await far.frames.get()
    far.drop()
    server, frame = await far.frames.get()
    server.transport.write(answer(frame, encode(ErrorAnswer("soon")), BrokerStopping.code))
    server, frame = await far.frames.get()
    server.transport.write(answer(frame, encode(TopicsAnswer([]))))
    assert await asked == TopicsAnswer([])


async def test_ask_tells_what_the_broker_refused_until_time_was_up(far: Far, link: Link) -> None:
    asked = asyncio.create_task(link.ask(TopicsAnswer, PING, timeout_ms=300))
    server, frame = await far.frames.get()
    server.transport.write(answer(frame, encode(ErrorAnswer("soon")), BrokerStopping.code))
    with pytest.raises(BrokerStopping, match="soon"):
        await asked


async def test_ask_raises_what_will_not_pass_and_ends_in_time(far: Far, link: Link) -> None:
    asked = asyncio.create_task(link.ask(TopicsAnswer, PING, timeout_ms=60_000))
    server, frame = await far.frames.get()
    server.transport.write(answer(frame, encode(ErrorAnswer("no")), InvalidArgument.code))
    with pytest.raises(InvalidArgument):
        await asked
    with pytest.raises(RequestTimeout):
        await link.ask(TopicsAnswer, PING, timeout_ms=20)


async def test_pushes_reach_the_receiver_even_when_it_failed_before(
    far: Far, watched: Watched
) -> None:
    def fail(frame: Frame) -> None:
        watched.pushed.append(frame)
        raise LookupError("a defect of the receiver")

    failing = Link(far.address, client_id="other", settings=LinkSettings((1, 5)), on_push=fail)
    await failing.start(5_000)
    far.servers[-1].transport.write(encode_frame(RequestCode.PUSHED_REPLY, 0, b"1") * 2)
    asked = asyncio.create_task(failing.request(PING, timeout_ms=60_000))
    server, frame = await far.frames.get()
    server.transport.write(answer(frame))
    await asked
    assert [bytes(frame.body) for frame in watched.pushed] == [b"1", b"1"]
    await failing.aclose()


async def test_bytes_that_are_no_frame_end_the_link(far: Far, watched: Watched) -> None:
    watched.ready.clear()
    far.servers[0].transport.write(b"\x00" * 16)
    await watched.down.wait()
    await watched.ready.wait()
    assert far.connections == 2


async def test_before_the_handshake_only_small_frames_are_accepted(far: Far) -> None:
    far.greet = lambda frame: answer(frame, bytes(ANSWER_BYTES_BEFORE_HELLO_MAX))  # type: ignore[method-assign]  # the far end misbehaves
    link = Link(far.address, client_id="me", settings=LinkSettings((1, 5)))
    with pytest.raises(ConnectionLost, match="no broker answers"):
        await link.start(50)


async def test_a_full_socket_makes_the_link_not_ready_until_the_far_end_reads(
    far: Far, watched: Watched
) -> None:
    server = far.servers[0]
    server.transport.pause_reading()
    watched.ready.clear()
    while watched.link.is_ready:
        watched.link.submit(PING, bytes(1 << 20), receive=lambda outcome: None, at_once=True)
    server.transport.resume_reading()
    await watched.ready.wait()
    assert watched.link.is_ready


async def test_closing_writes_what_was_submitted_and_fails_what_waits(far: Far, link: Link) -> None:
    asked = asyncio.create_task(link.request(PING, b"waits", timeout_ms=60_000))
    await far.frames.get()
    link.submit(PING, b"last", receive=lambda outcome: None)
    await link.aclose()
    _, frame = await far.frames.get()
    assert bytes(frame.body) == b"last"
    with pytest.raises(ConnectionLost):
        await asked
    with pytest.raises(Closed):
        await link.request(PING, timeout_ms=60_000)
    with pytest.raises(ConnectionLost):
        link.submit(PING, receive=lambda outcome: None)


async def test_closing_ends_requests_that_wait_for_a_connection(far: Far, watched: Watched) -> None:
    await far.stop()
    await watched.down.wait()
    asked = asyncio.create_task(watched.link.request(PING, timeout_ms=60_000))
    await asyncio.sleep(0)
    await watched.link.aclose()
    with pytest.raises(Closed):
        await asked
    await far.start()


async def test_a_link_is_started_once(link: Link) -> None:
    with pytest.raises(ValueError, match="once"):
        await link.start(5_000)


async def test_a_connection_found_dead_is_replaced(far: Far, watched: Watched) -> None:
    watched.ready.clear()
    watched.link.drop("no answer to heartbeats")
    assert watched.down.is_set()
    await watched.ready.wait()
    assert far.connections == 2
