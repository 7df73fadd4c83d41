"""
The worst that each request can legally ask for, sent to a broker that holds as much as it may.

A broker does one thing at a time, so what one request takes, everybody waits for. Counted is the
processor time of the broker's thread in one turn of its event loop, not what a clock on the wall
says, so that a busy machine changes nothing.
"""

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._net.link import hello_for
from headrace_mq.broker.dispatcher import HANDLERS, REQUEST_BYTES_MAX
from headrace_mq.broker.server import Broker
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.kept import KeptTopic
from headrace_mq.errors import ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    CloneOffsets,
    DeleteGroup,
    DeleteQueues,
    DescribeGroup,
    DescribeLag,
    DescribeProducers,
    DescribeQueues,
    FindMessages,
    FreezeQueues,
    ListConnections,
    ListGroups,
    OffsetsAt,
    ResetOffsets,
)
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import (
    Body,
    CommitOffsets,
    CommittedOffset,
    CreateTopic,
    DescribeTopics,
    Fetch,
    FetchFrom,
    GetOffsets,
    Heartbeat,
    HeldQueues,
    JoinGroup,
    LeaveGroup,
    LockQueues,
    ProduceAnswer,
    QueueName,
    QueueRanges,
    Reply,
    TopicFilter,
    UnlockQueues,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, FrameReader, encode_frame
from headrace_mq.protocol.limits import Rates, SetBacklogLimit, SetGroup, SetQuota
from headrace_mq.protocol.releases import QueueRelease, ReleaseMessages
from headrace_mq.protocol.scheduled import CancelScheduled
from headrace_mq.protocol.transactions import (
    TRANSACTION_TOPIC,
    Bundle,
    BundleEnds,
    BundlePart,
    EndTransactions,
    TakeChecks,
)
from headrace_mq.settings import BrokerSettings, StoreSettings

MIB = 1 << 20
PAUSE_MS_MAX = 50
# A measurement that something else disturbed is made again.
ATTEMPTS = 3
# 48 topics as large as they may be and many small ones: nearly all queues that a broker may have.
LARGE, SMALL = 48, 2_500
# Nearly all offsets: of many groups with one each, and of some with as many as a group may have.
GROUPS, WIDE, WIDE_OFFSETS = 100_000, 4, 8_192
MEMBERS = 512


class Measured:
    """A broker on a loop and a thread of its own, and how long its loop's longest turn took."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ready: Future[Broker] = Future()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.longest_ms = 0.0

    @contextmanager
    def running(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerState]:
        turn = asyncio.BaseEventLoop._run_once

        def measured(loop: asyncio.BaseEventLoop) -> None:
            before = time.thread_time()
            turn(loop)
            if threading.current_thread() is self._thread:
                self.longest_ms = max(self.longest_ms, (time.thread_time() - before) * 1_000)

        monkeypatch.setattr(asyncio.BaseEventLoop, "_run_once", measured)
        self._thread.start()
        state = self._ready.result(60)._state
        assert state is not None
        self.state = state
        try:
            yield state
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(60)

    def call(self, function: Callable[[], Any]) -> Any:
        """Calls a function on the broker's thread."""

        async def called() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(60)

    def settle(self) -> None:
        """Waits until what is under way has come to rest."""
        for _ in range(20):
            self.call(lambda: None)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        store = StoreSettings(
            directory=self._directory, segment_bytes=64 * MIB, disk_refuse_percent=100
        )
        settings = BrokerSettings(
            store=store,
            port=0,
            filter_processes_max=0,
            # What is measured is what a request takes, not how often it may come.
            address_queues_per_minute=0,
            address_offsets_per_minute=0,
        )
        async with Broker(settings) as broker:
            self._ready.set_result(broker)
            await self._stop.wait()


class Caller:
    """A client that speaks frames."""

    def __init__(self, address: str, name: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._frames = FrameReader(64 * MIB)
        self._correlation = 0
        self._waiting: list[Frame] = []
        assert self.ask(RequestCode.HELLO, hello_for(name)).code == ResponseCode.OK

    def say(self, code: int, body: Body | bytes) -> int:
        self._correlation += 1
        data = body if isinstance(body, bytes) else encode(body)
        self._socket.sendall(encode_frame(code, self._correlation, data))
        return self._correlation

    def ask(self, code: int, body: Body | bytes) -> Frame:
        correlation = self.say(code, body)
        while True:
            while self._waiting:
                frame = self._waiting.pop(0)
                if frame.correlation in {correlation, 0} and frame.is_answer:
                    return frame
            data = self._socket.recv(MIB)
            assert data, "the broker closed the connection"
            self._waiting += self._frames.feed(data)

    def write(self, data: bytes) -> None:
        """Sends frames that were made elsewhere."""
        self._socket.sendall(data)

    def take(self, count: int, *, at_most_s: float = 60.0) -> int:
        """Reads so many answers, or those that come in time; returns how many."""
        self._socket.settimeout(at_most_s)
        taken = 0
        with suppress(TimeoutError, BlockingIOError):
            while taken < count:
                frames = [*self._frames.feed(self._socket.recv(MIB))]
                assert all(frame.code == ResponseCode.OK for frame in frames)
                taken += len(frames)
        self._socket.settimeout(60)
        return taken

    def close(self) -> None:
        self._socket.close()


def topic(number: int) -> str:
    return f"t{number}"


def fill(state: BrokerState) -> None:
    """Gives a broker what many clients would need an evening for."""
    kept = {topic(number): KeptTopic(1_024, "transient") for number in range(LARGE)}
    kept |= {topic(LARGE + number): KeptTopic(4, "transient") for number in range(SMALL)}
    state.topics._change(kept)
    replenish(state)
    queues = [QueueRef(topic(n // 1_024), n % 1_024) for n in range(WIDE_OFFSETS)]
    for number in range(GROUPS):
        state.offsets.commit(f"g{number}", [(queues[number % 64], 0)])
    assert state.offsets.take_changes() is not None
    state.offsets.settle()


def replenish(state: BrokerState) -> None:
    """Puts back what a request may have deleted."""
    queues = [QueueRef(topic(n // 1_024), n % 1_024) for n in range(WIDE_OFFSETS)]
    for number in range(WIDE):
        if not state.offsets.topics_of(f"wide{number}"):
            state.offsets.commit(f"wide{number}", [(queue, 0) for queue in queues])
    made = [topic.topic for topic in state.topics.all() if topic.topic.startswith("new")]
    state.topics._change(dict.fromkeys(made))
    if "gone" not in state.topics:
        frozen = tuple(range(64))
        state.topics._change({"gone": KeptTopic(64, "transient", frozen, frozen)})
        done = [(QueueRef("gone", number), 0) for number in frozen]
        for number in range(500):
            state.offsets.commit(f"done{number}", done)
    if state.offsets.take_changes() is not None:
        state.offsets.settle()


def batch(name: str, number: int = 0) -> bytes:
    columns = Columns(["k"], [], [], [b"x"], [])
    return bytes(encode_batch(QueueRef(name, number), columns, born_first_ms=1))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    measured = Measured(tmp_path_factory.mktemp("worst") / "data")
    with pytest.MonkeyPatch.context() as patch, measured.running(patch) as state:
        measured.call(lambda: fill(state))
        # As a broker does when it has started; what the test itself makes is no concern of it.
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            yield measured
        finally:
            gc.enable()
            gc.unfreeze()


@pytest.fixture
def caller(measured: Measured) -> Iterator[Caller]:
    caller = Caller(measured.state.address, "caller")
    yield caller
    caller.close()
    measured.settle()


NAMES = [topic(number) for number in range(LARGE)]
TINY = ["t0"] * 80_000
FOUR = NAMES[:4]
WORST: dict[int, list[Body | bytes]] = {
    RequestCode.HELLO: [b"\x94\xd9\xff" + b"x" * 255 + b"\x01\x01\xdc\x7f\xff" + bytes(32_767)],
    RequestCode.HEARTBEAT: [
        Heartbeat("crowd", "m0", [HeldQueues(name, [*range(21)]) for name in NAMES]),
        Heartbeat("crowd", "m0", [HeldQueues("t0", [1] * 80_000)]),
    ],
    RequestCode.PRODUCE: [
        b"".join([batch("t0", number % 1_024) for number in range(1_024)]),
        b"".join([batch("t0")] * (4 * MIB // len(batch("t0")))),
        b"".join(batch(f"new{number}") for number in range(1_024)),
    ],
    RequestCode.FETCH: [
        Fetch([FetchFrom("t0", n, 0) for n in range(1_024)], MIB, 0, "g"),
        Fetch([FetchFrom("t0", 0, 0)] * 40_000, MIB, 0, "g"),
        Fetch(
            [FetchFrom("t0", n, 0) for n in range(1_024)], MIB, 0, "g",
            [TopicFilter("t0", f"a{n} = 'b'") for n in range(8_000)],
        ),
        Fetch(
            [FetchFrom("t0", n, 0) for n in range(64)], MIB, 0, "g",
            [TopicFilter("t0", " OR ".join([f"a = {n}"] * 180)) for n in range(100)],
        ),
    ],
    RequestCode.COMMIT_OFFSETS: [
        CommitOffsets("c", "", 0, [CommittedOffset("t0", n % 1_024, 0) for n in range(4_096)]),
        CommitOffsets("c", "", 0, [CommittedOffset("t0", 0, 0)] * 35_000),
    ],
    RequestCode.GET_OFFSETS: [GetOffsets("g0", FOUR), GetOffsets("g", TINY), GetOffsets("g", NAMES)],
    RequestCode.JOIN_GROUP: [
        JoinGroup("crowd", "m0", [*NAMES, *(f"{'n' * 120}{n}" for n in range(200))]),
        JoinGroup("j", "m", TINY),
    ],
    RequestCode.LEAVE_GROUP: [LeaveGroup("crowd", "m1")],
    RequestCode.REPLY: [Reply("caller", "c", bytes(4 * MIB - 100))],
    RequestCode.CREATE_TOPIC: [CreateTopic("new", 1_024)],
    RequestCode.DESCRIBE_TOPICS: [DescribeTopics(), DescribeTopics(TINY), DescribeTopics(NAMES)],
    RequestCode.QUEUE_RANGES: [QueueRanges(FOUR), QueueRanges(TINY), QueueRanges(NAMES)],
    RequestCode.DESCRIBE_BROKER: [b""],
    RequestCode.DESCRIBE_QUEUES: [DescribeQueues(["t0"]), DescribeQueues(TINY)],
    RequestCode.FREEZE_QUEUES: [
        FreezeQueues("t0", [*range(1_024)], True, True, False),
        FreezeQueues("t0", [1] * 200_000, True, True, False),
    ],
    RequestCode.DELETE_QUEUES: [DeleteQueues("t0", 0, True), DeleteQueues("gone", 0)],
    RequestCode.RELEASE_MESSAGES: [
        ReleaseMessages("t0", [QueueRelease(number, 0) for number in range(1_024)]),
        ReleaseMessages("t0", [QueueRelease(0, 0)] * 60_000),
    ],
    RequestCode.FIND_MESSAGES: [FindMessages("t0", "k" * 1_000, 0, 1 << 60, 1_000, 4 * MIB)],
    RequestCode.OFFSETS_AT: [OffsetsAt(FOUR, 1), OffsetsAt(TINY, 1), OffsetsAt(NAMES, 1)],
    RequestCode.RESET_OFFSETS: [
        ResetOffsets("r", "time", 1, FOUR),
        ResetOffsets("wide0", "earliest"),
        ResetOffsets("r", "earliest", 0, [f"x{n}" for n in range(20_000)], [*range(40_000)]),
    ],
    RequestCode.CLONE_OFFSETS: [CloneOffsets("wide0", "clone"), CloneOffsets("wide0", "c", TINY)],
    RequestCode.DELETE_GROUP: [DeleteGroup("wide0", True), DeleteGroup("wide1")],
    RequestCode.LOCK_QUEUES: [
        LockQueues("crowd", "m0", [QueueName("t0", number) for number in range(1_024)]),
        LockQueues("crowd", "m0", [QueueName("t0", 0)] * 50_000),
    ],
    RequestCode.UNLOCK_QUEUES: [
        UnlockQueues("crowd", "m0", [QueueName("t0", number) for number in range(1_024)])
    ],
    RequestCode.CANCEL_SCHEDULED: [CancelScheduled(1)],
    RequestCode.DESCRIBE_SCHEDULE: [b""],
    RequestCode.DESCRIBE_PRODUCERS: [
        DescribeProducers([*range(1_000)]), DescribeProducers([1] * 200_000),
    ],
    RequestCode.END_TRANSACTIONS: [
        EndTransactions("g", [BundleEnds(0, [0] * 200_000, [])]),
        EndTransactions("g", [BundleEnds(0, [], [])] * 60_000),
        EndTransactions("g", [BundleEnds(0, [0], [0])] * 8_192),
        EndTransactions("g", [BundleEnds(0, [*range(4_096)] * 15, [])]),
    ],
    RequestCode.TAKE_CHECKS: [TakeChecks("g", "c", 0)],
    RequestCode.DESCRIBE_TRANSACTIONS: [b""],
    RequestCode.SET_QUOTA: [SetQuota("client", "c", Rates(), remove=True)],
    RequestCode.DESCRIBE_QUOTAS: [b""],
    RequestCode.SET_BACKLOG_LIMIT: [SetBacklogLimit("wide2", 1_000, "reject")],
    RequestCode.DESCRIBE_BACKLOGS: [b""],
    RequestCode.LIST_GROUPS: [ListGroups(""), ListGroups("wid")],
    RequestCode.DESCRIBE_GROUP: [DescribeGroup("crowd"), DescribeGroup("wide2")],
    RequestCode.DESCRIBE_LAG: [
        DescribeLag("g", ["t0"]), DescribeLag("g", TINY), DescribeLag("crowd", ["t0"]),
    ],
    RequestCode.LIST_CONNECTIONS: [ListConnections()],
    RequestCode.BROKER_STATUS: [b""],
    RequestCode.SET_GROUP: [
        SetGroup("g", "off"), SetGroup("g", "on"), SetGroup("g", retries=1 << 62),
    ],
}  # fmt: skip


def test_the_worst_frame_of_every_request_is_here() -> None:
    assert WORST.keys() == HANDLERS.keys()
    bodies = [body for bodies in WORST.values() for body in bodies if isinstance(body, Body)]
    sizes = [len(encode(body)) for body in bodies if not isinstance(body, Reply)]
    assert sum(size > REQUEST_BYTES_MAX // 2 for size in sizes) >= 10


def prepare(measured: Measured, caller: Caller) -> None:
    for number in range(MEMBERS):
        caller.say(RequestCode.JOIN_GROUP, JoinGroup("crowd", f"m{number}", FOUR))
    answer = caller.ask(RequestCode.DESCRIBE_BROKER, b"")
    assert answer.code == ResponseCode.OK
    measured.settle()


def prepare_transaction(measured: Measured, caller: Caller) -> None:
    caller.ask(RequestCode.CREATE_TOPIC, CreateTopic(TRANSACTION_TOPIC, 1))
    ids = [str(number) for number in range(4_096)]
    bundle = Bundle("g", "caller", ids, [BundlePart(batch("t0"), [0])])
    columns = Columns([], [], [], [encode(bundle)], [])
    sent = encode_batch(QueueRef(TRANSACTION_TOPIC, 0), columns, born_first_ms=1)
    answer = decode(ProduceAnswer, caller.ask(RequestCode.PRODUCE, bytes(sent)).body)
    assert answer.results[0].code == ResponseCode.OK
    while not measured.call(lambda: measured.state.transactions.describe().undecided):
        measured.settle()


@pytest.mark.parametrize("code", HANDLERS, ids=lambda code: RequestCode(code).name)
def test_no_request_holds_up_the_others(measured: Measured, caller: Caller, code: int) -> None:
    if code in {
        RequestCode.HEARTBEAT, RequestCode.JOIN_GROUP, RequestCode.LEAVE_GROUP,
        RequestCode.LOCK_QUEUES, RequestCode.UNLOCK_QUEUES, RequestCode.DESCRIBE_GROUP,
        RequestCode.DESCRIBE_LAG,
    }:  # fmt: skip
        prepare(measured, caller)
    if code == RequestCode.DESCRIBE_LAG:
        # As many claims as the members of a group may have together.
        claims = [HeldQueues("t0", [*range(1_000)])]
        for number in range(18):
            caller.ask(RequestCode.HEARTBEAT, Heartbeat("crowd", f"m{number}", claims))
    if code == RequestCode.SET_GROUP:
        for number in range(1_000):
            place = FetchFrom("t0", number, 0)
            caller.say(RequestCode.FETCH, Fetch([place], MIB, 60_000, "g"))
    if code == RequestCode.END_TRANSACTIONS:
        prepare_transaction(measured, caller)
    for body in WORST[code]:
        for attempt in range(ATTEMPTS):
            measured.call(lambda: replenish(measured.state))
            asker = Caller(measured.state.address, f"asker {attempt}")
            measured.longest_ms = 0.0
            answer = (asker if code == RequestCode.HELLO else caller).ask(code, body)
            measured.settle()
            assert answer.code != ResponseCode.INTERNAL_ERROR
            asker.close()
            if measured.longest_ms <= PAUSE_MS_MAX:
                break
        assert measured.longest_ms <= PAUSE_MS_MAX


def test_many_small_requests_in_one_read_delay_no_other_client(
    measured: Measured, caller: Caller
) -> None:
    """Each takes milliseconds, and thousands of them fit what the broker reads at a time."""
    bystander = Caller(measured.state.address, "bystander")
    stream = b"".join(
        encode_frame(RequestCode.LIST_GROUPS, number, encode(ListGroups("")))
        for number in range(300)
    )
    measured.longest_ms = 0.0
    caller.write(stream)
    # Asked behind all of that, answered before most of it.
    assert bystander.ask(RequestCode.DESCRIBE_BROKER, b"").code == ResponseCode.OK
    answered = caller.take(300, at_most_s=0.0)
    assert answered < 150
    assert answered + caller.take(300 - answered) == 300
    assert measured.longest_ms <= PAUSE_MS_MAX
    bystander.close()


def test_many_connections_that_ask_at_once_delay_no_other_client(measured: Measured) -> None:
    callers = [Caller(measured.state.address, f"many {number}") for number in range(100)]
    bystander = Caller(measured.state.address, "bystander")
    measured.settle()
    measured.longest_ms = 0.0
    measured.call(
        lambda: [caller.say(RequestCode.LIST_GROUPS, ListGroups("")) for caller in callers]
    )
    assert bystander.ask(RequestCode.DESCRIBE_BROKER, b"").code == ResponseCode.OK
    for caller in callers:
        assert caller.take(1) == 1
        caller.close()
    assert measured.longest_ms <= PAUSE_MS_MAX
    bystander.close()


def test_a_message_that_wakes_all_waiting_fetches_delays_no_other_client(
    measured: Measured,
) -> None:
    readers = [Caller(measured.state.address, f"reader {number}") for number in range(16)]
    fetch = encode(Fetch([FetchFrom("waited", 0, 0)], MIB, 60_000, ""))
    measured.call(lambda: measured.state.topics.admit(["waited"]))
    for reader in readers:
        reader.write(
            b"".join(encode_frame(RequestCode.FETCH, number, fetch) for number in range(1_024))
        )
    while measured.call(lambda: len(measured.state.long_poll)) < 16 * 1_024:
        measured.settle()
    measured.longest_ms = 0.0
    sender = Caller(measured.state.address, "sender")
    assert sender.ask(RequestCode.PRODUCE, batch("waited")).code == ResponseCode.OK
    for reader in readers:
        assert reader.take(1_024) == 1_024
        reader.close()
    sender.close()
    assert measured.longest_ms <= PAUSE_MS_MAX
