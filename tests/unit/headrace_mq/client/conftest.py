"""A scripted broker: serves a client by itself, except for requests that a test holds back."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.errors import (
    BrokerError,
    NotGroupMember,
    NotLeader,
    OffsetOutOfRange,
    QueueFrozen,
    QueueNotFound,
    ReplyUndeliverable,
    ResponseCode,
    SequenceGap,
    StaleLock,
    TopicNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import OffsetsAt
from headrace_mq.protocol.batch import (
    Columns,
    assign,
    check_body,
    encode_batch,
    read_header,
    split_batches,
)
from headrace_mq.protocol.bodies import (
    Body,
    CommitOffsets,
    CommittedOffset,
    CreateTopic,
    DescribeTopics,
    ErrorAnswer,
    Fetch,
    FetchAnswer,
    FetchedQueue,
    GetOffsets,
    GroupAnswer,
    GroupChanged,
    GroupMember,
    Heartbeat,
    Hello,
    HelloAnswer,
    JoinGroup,
    LeaveGroup,
    LockQueues,
    LocksAnswer,
    OffsetsAnswer,
    ProduceAnswer,
    Produced,
    QueueLock,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    Reply,
    ReplyPush,
    TopicDescription,
    TopicsAnswer,
    UnlockQueues,
    decode,
    encode,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, Frame, FrameReader, encode_frame
from headrace_mq.settings import ConsumerSettings

EVERYTHING = 1 << 30
# Quick heartbeats and reconnections; commits only on demand.
QUICK = {
    "heartbeat_ms": 2,
    "reconnect_ms_min": 1,
    "reconnect_ms_max": 5,
    "commit_interval_ms": 60_000,
    "retry_ms_min": 1,
    "request_timeout_ms": 5_000,
}


class Peer(asyncio.Protocol):
    """One client's connection, seen from the broker."""

    def __init__(self, broker: "FakeBroker") -> None:
        self._broker = broker
        self._reader = FrameReader(EVERYTHING)
        self.client_id = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._broker.peers.append(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            self._broker.take(Request(self, frame))

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.peers.remove(self)
        self._broker.forget(self)

    def send(self, code: int, correlation: int, *parts: bytes, flags: int = 0) -> None:
        self.transport.write(encode_frame(code, correlation, *parts, flags=flags))


class Request:
    """A request that arrived; its test or the broker answers it."""

    def __init__(self, peer: Peer, frame: Frame) -> None:
        self.peer = peer
        self.code = RequestCode(frame.code)
        self.body = bytes(frame.body)
        self.is_oneway = frame.is_oneway
        self._correlation = frame.correlation

    def answer(self, *parts: bytes) -> None:
        self.peer.send(ResponseCode.OK, self._correlation, *parts, flags=FLAG_ANSWER)

    def refuse(self, error: BrokerError) -> None:
        sentence = encode(ErrorAnswer(str(error)))
        self.peer.send(error.code, self._correlation, sentence, flags=FLAG_ANSWER)


class FakeBroker:
    """Topics, groups and offsets in memory; requests in `held` wait for the test in `next`."""

    def __init__(self, port: int) -> None:
        # Of the broker, and in which its group last lost messages; by queue, where these changed.
        self.epochs = (1, 0)
        self.changed: dict[QueueRef, int] = {}
        self.frame_bytes_max = (4 << 20) + (64 << 10)
        self.creates_topics = True
        self.is_replica = False
        self.topics: dict[str, int] = {}
        self.frozen: set[QueueRef] = set()
        self.unreadable: set[QueueRef] = set()
        self.compact: set[str] = set()
        self.batches: dict[QueueRef, list[bytes]] = defaultdict(list)
        self.history: list[bytes] = []  # All batches in the order in which they were stored.
        self.first: dict[QueueRef, int] = defaultdict(int)
        self.offsets: dict[tuple[str, QueueRef], int] = {}
        self.members: dict[str, tuple[list[str], Peer | None]] = {}
        self.generation = 0
        # Whether the group consumes, and its retries.
        self.rules = (True, -1)
        self.now_ms = 2
        self.locks: dict[QueueRef, tuple[str, int]] = {}
        self.lock_epoch = 0
        self.lock_expiry_ms = 60_000
        self.held: set[RequestCode] = set()
        self.peers: list[Peer] = []
        self.seen: list[Request] = []
        self.parked: list[Request] = []
        self._sent: dict[tuple[int, QueueRef], tuple[int, int, int]] = {}
        self._queues: dict[RequestCode, asyncio.Queue[Request]] = defaultdict(asyncio.Queue)
        self._server: asyncio.Server | None = None
        self.port = port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Stops listening and ends every connection; `start` listens at the same port again."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self.drop()
            await server.wait_closed()
            while self.peers:
                await asyncio.sleep(0)

    def drop(self) -> None:
        """Ends every connection without a word."""
        for peer in self.peers:
            peer.transport.abort()

    async def next(self, code: RequestCode) -> Request:
        """The next request of a held kind."""
        return await self._queues[code].get()

    def count(self, code: RequestCode) -> int:
        return sum(request.code == code for request in self.seen)

    def end(self, queue: QueueRef) -> int:
        held = self.batches[queue]
        return read_header(held[-1]).next_offset if held else self.first[queue]

    def append(self, queue: QueueRef, bodies: Sequence[bytes], *, base: int | None = None) -> bytes:
        """Stores a batch, at the queue's end or further on, and wakes parked fetches."""
        batch = encode_batch(queue, Columns([], [], [], list(bodies), []), born_first_ms=1)
        return self._store(queue, batch, self.end(queue) if base is None else base)

    def push(self, code: RequestCode, body: Body) -> None:
        for peer in self.peers:
            peer.send(code, 0, encode(body))

    def join(self, member: str, topics: Sequence[str]) -> GroupChanged:
        """Another member enters; returns the view, which the test pushes."""
        self.members[member] = (list(topics), None)
        self.generation += 1
        return GroupChanged("g", self.generation, self._view().members)

    def leave(self, member: str) -> GroupChanged:
        del self.members[member]
        self.locks = {q: held for q, held in self.locks.items() if held[0] != member}
        self.generation += 1
        return GroupChanged("g", self.generation, self._view().members)

    def forget(self, peer: Peer) -> None:
        for member in [name for name, (_, its) in self.members.items() if its is peer]:
            self.leave(member)
        self.parked = [request for request in self.parked if request.peer is not peer]

    def take(self, request: Request) -> None:
        self.seen.append(request)
        if request.code in self.held:
            self._queues[request.code].put_nowait(request)
        else:
            self.serve(request)

    def serve(self, request: Request) -> None:
        """Answers as a broker would."""
        serve: Callable[[Request], Body | bytes | None] = getattr(
            self, f"_{request.code.name.lower()}"
        )
        try:
            answer = serve(request)
        except BrokerError as error:
            request.refuse(error)
        else:
            if answer is not None and not request.is_oneway:
                request.answer(answer if isinstance(answer, bytes) else encode(answer))

    def _store(self, queue: QueueRef, batch: bytearray, base: int) -> bytes:
        assign(batch, base_offset=base, position=0, appended_at_ms=self.now_ms, epoch=1)
        self.batches[queue].append(bytes(batch))
        self.history.append(bytes(batch))
        parked, self.parked = self.parked, []
        for request in parked:
            self.serve(request)
        return bytes(batch)

    def _hello(self, request: Request) -> Body:
        hello = decode(Hello, request.body)
        if self.is_replica and not hello.reads:
            raise NotLeader("a replica")
        request.peer.client_id = hello.client_id
        return HelloAnswer("fake", 1, 1, self.frame_bytes_max, replica=self.is_replica)

    def _describe_topics(self, request: Request) -> Body:
        asked = decode(DescribeTopics, request.body)
        if asked.create_missing and self.creates_topics:
            for topic in asked.topics:
                self.topics.setdefault(topic, 2)
        names = asked.topics or list(self.topics)
        return TopicsAnswer(
            [
                TopicDescription(
                    n,
                    self.topics[n],
                    "compact" if n in self.compact else "transient",
                    [q.queue_id for q in self.frozen if q.topic == n],
                    [q.queue_id for q in self.unreadable if q.topic == n],
                )
                for n in names
                if n in self.topics
            ]
        )

    def _create_topic(self, request: Request) -> Body:
        asked = decode(CreateTopic, request.body)
        self.topics[asked.topic] = asked.queues or 2
        return TopicsAnswer([TopicDescription(asked.topic, asked.queues, asked.retention)])

    def _produce(self, request: Request) -> Body:
        return ProduceAnswer([self._append(bytearray(b)) for b in split_batches(request.body)])

    def _append(self, batch: bytearray) -> Produced:
        check_body(batch)
        header = read_header(batch)
        queue, first, count = header.queue, header.first_sequence, header.count
        known = self._sent.get((header.producer_id, queue))
        if header.producer_id and known is not None and known[:2] == (first, count):
            return Produced(*queue, known[2], duplicate=True)
        if queue in self.frozen:
            return Produced(*queue, -1, QueueFrozen.code, f"{queue} is frozen")
        if queue.queue_id >= self.topics.get(queue.topic, EVERYTHING):
            return Produced(*queue, -1, QueueNotFound.code, f"there is no {queue}")
        if header.producer_id == 0:
            base = self.end(queue)
            self._store(queue, batch, base)
            return Produced(*queue, base)
        expected = known[0] + known[1] if known is not None else first
        if first != expected:
            return Produced(*queue, -1, SequenceGap.code, f"{first} came, not {expected}")
        base = self.end(queue)
        self._sent[header.producer_id, queue] = (first, count, base)
        self._store(queue, batch, base)
        return Produced(*queue, base)

    def _fetch(self, request: Request) -> bytes | None:
        states: list[FetchedQueue] = []
        batches: list[bytes] = []
        for item in decode(Fetch, request.body).queues:
            queue = QueueRef(item.topic, item.queue_id)
            first, end = self.first[queue], self.end(queue)
            if not first <= item.offset <= end:
                code = OffsetOutOfRange.code
                states.append(FetchedQueue(*queue, first, end, code, "out of range"))
            elif item.offset < end:
                states.append(FetchedQueue(*queue, first, end))
                held = self.batches[queue]
                batches += [b for b in held if read_header(b).next_offset > item.offset]
        if not states:
            self.parked.append(request)
            return None
        return b"".join((encode_fetch_answer(FetchAnswer(states)), *batches))

    def _view(self) -> GroupAnswer:
        members = [GroupMember(name, topics) for name, (topics, _) in self.members.items()]
        return GroupAnswer(self.generation, members, *self.rules)

    def _join_group(self, request: Request) -> Body:
        asked = decode(JoinGroup, request.body)
        self.members[asked.member] = (asked.topics, request.peer)
        self.generation += 1
        return self._view()

    def lock(self, member: str, queue: QueueRef) -> int:
        """Another member takes a lock, whoever holds it; returns its epoch."""
        self.lock_epoch += 1
        self.locks[queue] = (member, self.lock_epoch)
        return self.lock_epoch

    def _lock_queues(self, request: Request) -> Body:
        asked = decode(LockQueues, request.body)
        if asked.member not in self.members:
            raise NotGroupMember("join again")
        granted: list[QueueLock] = []
        for name in asked.queues:
            queue = QueueRef(name.topic, name.queue_id)
            if queue not in self.locks:
                self.lock(asked.member, queue)
            if self.locks[queue][0] == asked.member:
                granted.append(QueueLock(*queue, self.locks[queue][1]))
        return LocksAnswer(granted, self.lock_expiry_ms)

    def _unlock_queues(self, request: Request) -> bytes:
        asked = decode(UnlockQueues, request.body)
        for name in asked.queues:
            if self.locks.get(QueueRef(name.topic, name.queue_id), ("", 0))[0] == asked.member:
                del self.locks[QueueRef(name.topic, name.queue_id)]
        return b""

    def _heartbeat(self, request: Request) -> Body:
        asked = decode(Heartbeat, request.body)
        if asked.member not in self.members:
            raise NotGroupMember("join again")
        return self._view()

    def _leave_group(self, request: Request) -> bytes:
        member = decode(LeaveGroup, request.body).member
        if member not in self.members:
            raise NotGroupMember("it left")
        self.leave(member)
        return b""

    def _all_queues(self, topics: Sequence[str]) -> list[QueueRef]:
        for topic in topics:
            if topic not in self.topics:
                raise TopicNotFound(f"no topic {topic}")
        return [QueueRef(topic, n) for topic in topics for n in range(self.topics[topic])]

    def _get_offsets(self, request: Request) -> Body:
        asked = decode(GetOffsets, request.body)
        queues = self._all_queues(asked.topics)
        return OffsetsAnswer(
            [CommittedOffset(*q, self.offsets.get((asked.group, q), -1)) for q in queues]
        )

    def _commit_offsets(self, request: Request) -> bytes:
        asked = decode(CommitOffsets, request.body)
        if asked.member and asked.member not in self.members:
            raise NotGroupMember("join again")
        for item in asked.offsets:
            held = self.locks.get(QueueRef(item.topic, item.queue_id), ("", 0))
            if item.lock_epoch != held[1] and (item.lock_epoch or held[0] != asked.member):
                raise StaleLock("lock it again")
        for item in asked.offsets:
            self.offsets[asked.group, QueueRef(item.topic, item.queue_id)] = item.offset
        return b""

    def _offsets_at(self, request: Request) -> Body:
        asked = decode(OffsetsAt, request.body)
        found = []
        for queue in self._all_queues(asked.topics):
            headers = [read_header(batch) for batch in self.batches[queue]]
            young = [h.base_offset for h in headers if h.appended_at_ms >= asked.time_ms]
            found.append(CommittedOffset(*queue, min(young, default=self.end(queue))))
        return OffsetsAnswer(found)

    def _queue_ranges(self, request: Request) -> Body:
        asked = decode(QueueRanges, request.body)
        epoch, lossy = self.epochs
        known = {QueueRef(each.topic, each.queue_id): each.epoch for each in asked.known}
        ranges = []
        for q in self._all_queues(asked.topics):
            changed = self.changed.get(q, -1) if 0 < known.get(q, 0) < lossy else -1
            ranges.append(QueueRange(*q, self.first[q], self.end(q), -1, epoch, changed))
        return QueueRangesAnswer(ranges, [], epoch, lossy)

    def _reply(self, request: Request) -> bytes:
        asked = decode(Reply, request.body)
        for peer in self.peers:
            if peer.client_id == asked.client_id:
                peer.send(
                    RequestCode.PUSHED_REPLY, 0, encode(ReplyPush(asked.correlation, asked.body))
                )
                return b""
        raise ReplyUndeliverable(f"{asked.client_id} is not connected")


class HandClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.time_ms = 1_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


@pytest.fixture
async def broker(free_port: Callable[[], int]) -> AsyncIterator[FakeBroker]:
    broker = FakeBroker(free_port())
    await broker.start()
    yield broker
    await broker.stop()


@pytest.fixture
async def link(broker: FakeBroker) -> AsyncIterator[Link]:
    link = Link(broker.address, client_id="me", settings=LinkSettings((1, 5)))
    await link.start(5_000)
    yield link
    await link.aclose()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], object]:
    """Waits, by letting others run, until a condition holds; the test's timeout bounds it."""

    async def wait(condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0)

    return wait


@pytest.fixture
def make(broker: FakeBroker) -> Callable[..., Consumer]:
    """Makes members of group g that subscribe to topic t."""

    def make(load_offsets: Any = None, **settings: Any) -> Consumer:
        return Consumer(
            broker.address,
            group="g",
            topics=["t"],
            settings=ConsumerSettings(**(QUICK | settings)),
            load_offsets=load_offsets,
        )

    return make


@pytest.fixture
async def consumer(broker: FakeBroker, make: Callable[..., Consumer]) -> AsyncIterator[Consumer]:
    """A member that holds queues 0 and 1 of topic t."""
    broker.topics["t"] = 2
    async with make() as consumer:
        yield consumer
