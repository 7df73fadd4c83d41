"""
The worst that each request can legally ask for, sent to a broker that holds as much as it may.

A broker does one thing at a time, so what one request takes, everybody waits for. Counted is the
processor time of the broker's thread in one turn of its event loop, not what a clock on the wall
says. A thread that shares its core's caches with others, or whose machine is slow, takes more of it
for the same work: a fixed piece of work, timed on the same thread at once, says how much more.
"""

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count

import pytest

from headrace_mq.broker.dispatcher import HANDLERS, REQUEST_BYTES_MAX
from headrace_mq.broker.replicas.bodies import FollowRequest, LogEnd
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.kept import KeptTopic
from headrace_mq.errors import ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.protocol.access import (
    SCRAM,
    Credentials,
    ExplainAccess,
    ListRules,
    Login,
    RuleEntry,
    SetPassword,
    SetRule,
    SetUser,
)
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
from headrace_mq.protocol.frame import encode_frame
from headrace_mq.protocol.limits import (
    HandOverTo,
    NoteChange,
    Rates,
    SetBacklogLimit,
    SetGroup,
    SetQuota,
)
from headrace_mq.protocol.names.routes import FindRoutes, Register
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
from tests.integration.mq.timed_broker import MIB, Caller, TimedBroker, open_caller

# 48 topics as large as they may be and many small ones: nearly all queues that a broker may have.
LARGE, SMALL = 48, 2_500
# Nearly all offsets: of many groups with one each, and of some with as many as a group may have.
GROUPS, WIDE, WIDE_OFFSETS = 100_000, 4, 8_192
MEMBERS = 512


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
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimedBroker]:
    measured = TimedBroker(tmp_path_factory.mktemp("worst") / "data")
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
def caller(measured: TimedBroker) -> Iterator[Caller]:
    with open_caller(measured, "caller") as caller:
        yield caller
    measured.settle()


NAMES = [topic(number) for number in range(LARGE)]
TINY = ["t0"] * 80_000
FOUR = NAMES[:4]
WORST: dict[int, list[Body | bytes]] = {
    RequestCode.HELLO: [b"\x94\xd9\xff" + b"x" * 255 + b"\x01\x01\xdc\x7f\xff" + bytes(32_767)],
    RequestCode.LOGIN: [Login(SCRAM, "n,,n=" + "a" * 250_000)],
    RequestCode.SET_USER: [SetUser("add", "a", set_roles=True, roles=["r"] * 100_000)],
    RequestCode.SET_PASSWORD: [SetPassword("a", Credentials(bytes(200_000), b"", b"", 1 << 60))],
    RequestCode.LIST_USERS: [b""],
    RequestCode.SET_RULE: [SetRule(RuleEntry("a", "read", "topic:" + "a" * 250_000, allows=True))],
    RequestCode.LIST_RULES: [ListRules("a" * 250_000)],
    RequestCode.EXPLAIN_ACCESS: [ExplainAccess("a", "read", "topic:" + "a" * 250_000)],
    RequestCode.REGISTER: [Register(*["a" * 60_000] * 4, 1, ["a"] * 10_000)],
    RequestCode.ROUTES: [FindRoutes("a" * 200_000)],
    RequestCode.NOTE_CHANGE: [NoteChange("a" * 200_000, "g"), NoteChange("a", "g" * 200_000)],
    RequestCode.HAND_OVER: [HandOverTo("a" * 200_000)],
    RequestCode.FOLLOW: [FollowRequest("a", "b", 1, [LogEnd("forever", 1, 1, 1)] * 16_000, 1, 1, 1)],
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
    RequestCode.DESCRIBE_SETTINGS: [b""],
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


def prepare(measured: TimedBroker, caller: Caller) -> None:
    for number in range(MEMBERS):
        caller.say(RequestCode.JOIN_GROUP, JoinGroup("crowd", f"m{number}", FOUR))
    answer = caller.ask(RequestCode.DESCRIBE_BROKER, b"")
    assert answer.code == ResponseCode.OK
    measured.settle()


def prepare_transaction(measured: TimedBroker, caller: Caller) -> None:
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
def test_no_request_holds_up_the_others(measured: TimedBroker, caller: Caller, code: int) -> None:
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

    def ask(body: Body | bytes) -> None:
        with open_caller(measured, "asker") as asker:
            measured.call(lambda: replenish(measured.state))
            measured.longest_ms = 0.0
            answer = (asker if code == RequestCode.HELLO else caller).ask(code, body)
            measured.settle()
            assert answer.code != ResponseCode.INTERNAL_ERROR

    for body in WORST[code]:
        measured.assert_short_turns(partial(ask, body))


def test_many_small_requests_in_one_read_delay_no_other_client(
    measured: TimedBroker, caller: Caller
) -> None:
    """Each takes milliseconds, and thousands of them fit what the broker reads at a time."""
    stream = b"".join(
        encode_frame(RequestCode.LIST_GROUPS, number, encode(ListGroups("")))
        for number in range(300)
    )

    def ask() -> None:
        caller.write(stream)
        # Asked behind all of that, answered before most of it.
        assert bystander.ask(RequestCode.DESCRIBE_BROKER, b"").code == ResponseCode.OK
        answered = caller.take(300, at_most_s=0.0)
        assert answered < 150
        assert answered + caller.take(300 - answered) == 300

    with open_caller(measured, "bystander") as bystander:
        measured.assert_short_turns(ask)


def test_many_connections_that_ask_at_once_delay_no_other_client(measured: TimedBroker) -> None:
    def ask() -> None:
        measured.call(
            lambda: [caller.say(RequestCode.LIST_GROUPS, ListGroups("")) for caller in callers]
        )
        assert bystander.ask(RequestCode.DESCRIBE_BROKER, b"").code == ResponseCode.OK
        assert [caller.take(1) for caller in callers] == [1] * len(callers)

    with ExitStack() as opened:
        callers = [opened.enter_context(open_caller(measured, f"many {n}")) for n in range(100)]
        bystander = opened.enter_context(open_caller(measured, "bystander"))
        measured.settle()
        measured.assert_short_turns(ask)


def test_a_message_that_wakes_all_waiting_fetches_delays_no_other_client(
    measured: TimedBroker,
) -> None:
    measured.call(lambda: measured.state.topics.admit(["waited"]))
    offsets = count()

    def wake() -> None:
        fetch = encode(Fetch([FetchFrom("waited", 0, next(offsets))], MIB, 60_000, ""))
        frames = (encode_frame(RequestCode.FETCH, number, fetch) for number in range(1_024))
        stream = b"".join(frames)
        for reader in readers:
            reader.write(stream)
        while measured.call(lambda: len(measured.state.long_poll)) < 16 * 1_024:
            measured.settle()
        measured.longest_ms = 0.0
        assert sender.ask(RequestCode.PRODUCE, batch("waited")).code == ResponseCode.OK
        assert [reader.take(1_024) for reader in readers] == [1_024] * len(readers)

    with ExitStack() as opened:
        readers = [opened.enter_context(open_caller(measured, f"reader {n}")) for n in range(16)]
        sender = opened.enter_context(open_caller(measured, "sender"))
        measured.assert_short_turns(wake)
