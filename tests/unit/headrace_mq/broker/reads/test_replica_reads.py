"""A replica gives readers what is committed while it is in sync and hears of its leader, and refuses otherwise."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from headrace_mq._net.login import credentials_of
from headrace_mq.broker.metadata import limits_file, topics_file, users_file
from headrace_mq.broker.quotas.limits import KeptLimits, KeptQuota
from headrace_mq.broker.reads.replica_reads import (
    READ_BYTES_MAX,
    READS_PER_CONNECTION_MAX,
    ReplicaReads,
)
from headrace_mq.broker.replicas.standby import Standby
from headrace_mq.broker.topics.kept import KeptGrave, KeptTopic, KeptTopics
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.cluster.record import Proposal
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import ResponseCode
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.access import SCRAM, RuleEntry, SetUser
from headrace_mq.protocol.batch import split_batches
from headrace_mq.protocol.bodies import (
    ErrorAnswer,
    Fetch,
    FetchAnswer,
    FetchedQueue,
    FetchFrom,
    Hello,
    HelloAnswer,
    decode,
    decode_fetch_answer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, Frame
from headrace_mq.protocol.limits import CLIENT, SettingsAnswer
from headrace_mq.settings import BrokerSettings, GroupSettings
from tests.unit.headrace_mq.broker.replicas.conftest import Place
from tests.unit.headrace_mq.broker.replicas.repairs.test_repairs import entries, flip
from tests.unit.headrace_mq.broker.test_replicated_broker import PATIENT, Group, LoggedIn

QUEUE = QueueRef("orders", 0)


class Client:
    """A connection that keeps its answers."""

    def __init__(self) -> None:
        self.client_id = self.user = self.principal = ""
        self.host, self.peer = "127.0.0.1", "127.0.0.1:4000"
        self.congested = False
        self.answers: list[tuple[int, memoryview]] = []
        self.frame_bytes_max = 0

    def answer(self, code: int, _correlation: int, *parts: bytes) -> None:
        self.answers.append((code, memoryview(b"".join(parts))))

    def greet(self, client_id: str, _version: int) -> None:
        self.client_id = client_id

    def admit(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max

    def refuse(self) -> None:
        pass


class Clock:
    """Stands still until it is moved."""

    ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms


def frame(code: int, body: Any) -> Frame:
    return Frame(code, PROTOCOL_VERSION, 0, 1, memoryview(encode(body)))


def hello(*, reads: bool = True) -> Frame:
    said = Hello("id", PROTOCOL_VERSION, PROTOCOL_VERSION, "reader", reads)
    return frame(RequestCode.HELLO, said)


def fetch(offset: int = 0, queue: QueueRef = QUEUE, **others: Any) -> Frame:
    asked = Fetch(
        [FetchFrom(*queue, offset)],
        others.pop("bytes_max", 1 << 20),
        others.pop("wait_ms", 0),
        **others,
    )
    return frame(RequestCode.FETCH, asked)


class Served:
    """A replica, its leader, and a client of the replica."""

    def __init__(self, places: list[Place], *, login: bool = False) -> None:
        self.leader, self.place = places
        self.record = MemoryRecord()
        self.clock = Clock()
        settings = BrokerSettings(
            store=self.place.settings,
            login=login,
            group=GroupSettings(
                record="postgresql://unused/record",
                replica_stale_ms_max=100,
                user="root" if login else None,
                password_file=Path("unused") if login else None,
            ),
        )
        clock: Any = self.clock
        self.reads = ReplicaReads(self.place.replica, self.place.member, settings, clock)
        self.standby = Standby(lambda: "h:2", settings.frame_bytes_max, self.reads)
        self.client = Client()

    async def begin(self) -> None:
        await self.record.create(self.leader.me, [self.leader.me])
        self.followers = await self.leader.lead(self.record)
        self.keep_topics(KeptTopics({"orders": KeptTopic(1, "forever")}))

    def keep_topics(self, topics: KeptTopics) -> None:
        file = topics_file(self.leader.settings.directory)
        file.write(topics)
        self.followers.on_renamed(file.path)

    async def copy(self, turns: int = 12) -> None:
        """Follows for a while, as the broker does."""
        for _ in range(turns):
            asked_ms = self.clock.ms
            await self.place.step(self.followers)
            self.place.replica.heard_ms = asked_ms
            if self.place.me not in self.followers.leadership.confirmed:
                proposal = self.leader.member.grow(self.place.me)
                if proposal is not None:
                    self.leader.member.on_record(await self.record.propose(proposal))
            self.place.member.on_record(await self.record.read())

    def ask(self, asked: Frame) -> None:
        client: Any = self.client
        self.standby.on_frame(client, asked)

    def refused(self, asked: Frame) -> str:
        self.ask(asked)
        code, body = self.client.answers[-1]
        assert code == ResponseCode.NOT_LEADER
        return decode(ErrorAnswer, body).sentence

    def answered(self, asked: Frame) -> tuple[list[FetchedQueue], int]:
        """States of queues, and how many batches came."""
        count = len(self.client.answers)
        self.ask(asked)
        assert len(self.client.answers) > count
        return self.last()

    def last(self) -> tuple[list[FetchedQueue], int]:
        code, body = self.client.answers[-1]
        assert code == ResponseCode.OK
        states, batches = decode_fetch_answer(body)
        return states.queues, len(list(split_batches(batches)))


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[list[Place]]:
    made = [Place(tmp_path, name) for name in "ab"]
    yield made
    for place in made:
        await place.replica.aclose()


@pytest.fixture
async def served(places: list[Place]) -> Served:
    made = Served(places)
    await made.begin()
    return made


async def test_a_replica_in_sync_serves_what_is_committed(served: Served) -> None:
    assert "no replica in sync" in served.refused(hello())
    served.leader.append(1, 2, 3)
    await served.leader.until(lambda: served.leader.end() == 3)
    await served.copy()
    assert "h:2" in served.refused(hello(reads=False))
    served.ask(hello())
    assert decode(HelloAnswer, served.client.answers[-1][1]).replica
    assert served.client.frame_bytes_max > 0
    assert served.answered(fetch()) == ([FetchedQueue(*QUEUE, 0, 3)], 3)
    assert served.answered(fetch(2, bytes_max=1)) == ([FetchedQueue(*QUEUE, 0, 3)], 1)
    assert "h:2" in served.refused(frame(RequestCode.COMMIT_OFFSETS, FetchAnswer([])))


async def test_a_replica_never_shows_what_its_leader_has_not_committed(served: Served) -> None:
    served.leader.append(1)
    await served.leader.until(lambda: served.leader.end() == 1)
    await served.copy()
    served.ask(hello())
    served.leader.append(2)
    await served.leader.until(lambda: len(served.followers.gate) == 1)
    await served.place.step(served.followers)
    # It is on the disk of both; the replica has not heard that it is committed.
    assert served.place.logs.ends() == served.leader.logs.ends()
    assert served.answered(fetch()) == ([FetchedQueue(*QUEUE, 0, 1)], 1)
    served.ask(fetch(1))
    await served.place.until(lambda: len(served.client.answers) == 3)
    assert served.last() == ([], 0)
    # A start shows all that is there, so it has to hear first.
    await served.place.replica.aclose()
    assert "h:2" in served.refused(hello(reads=False))
    served.place.replica.open()
    assert "how much of its log is committed" in served.refused(fetch())
    await served.copy()
    assert served.answered(fetch()) == ([FetchedQueue(*QUEUE, 0, 2)], 2)


async def test_a_read_waits_for_what_comes(served: Served) -> None:
    served.leader.append(1)
    await served.leader.until(lambda: served.leader.end() == 1)
    await served.copy()
    served.ask(hello())
    served.ask(fetch(1, wait_ms=60_000))
    served.leader.append(2)
    await served.leader.until(lambda: len(served.followers.gate) == 1)
    await served.copy()
    await served.place.until(lambda: len(served.client.answers) > 1)
    assert served.last() == ([FetchedQueue(*QUEUE, 0, 2)], 1)


async def test_a_replica_refuses_without_its_leader_and_out_of_the_set(served: Served) -> None:
    served.leader.append(1)
    await served.leader.until(lambda: served.leader.end() == 1)
    await served.copy()
    served.ask(hello())
    served.clock.ms = 100
    assert served.answered(fetch())[1] == 1
    served.clock.ms = 101
    assert "has not heard of its leader for 100 ms" in served.refused(fetch())
    served.client, known = Client(), served.client
    assert "has not heard" in served.refused(hello())
    served.client = known
    await served.copy(1)
    assert served.answered(fetch())[1] == 1
    seen = await served.record.read()
    alone = Proposal(seen.version, seen.epoch, seen.leader, frozenset({served.leader.me}))
    served.place.member.on_record(await served.record.propose(alone))
    assert "no replica in sync" in served.refused(fetch())


async def test_a_replica_whose_leader_changed_refuses_until_it_hears_of_the_new_one(
    served: Served,
) -> None:
    served.leader.append(1)
    await served.leader.until(lambda: served.leader.end() == 1)
    await served.copy()
    served.ask(hello())
    seen = await served.record.read()
    served.place.member.on_record(
        await served.record.propose(Proposal(seen.version, seen.epoch + 1, *seen[2:4]))
    )
    assert "committed" in served.refused(fetch())


async def test_a_replica_says_which_queues_it_cannot_serve(served: Served) -> None:
    served.leader.append(1, 2)
    await served.leader.until(lambda: served.leader.end() == 2)
    await served.copy()
    served.ask(hello())
    for queue in (QueueRef("other", 0), QueueRef("orders", 1), QueueRef("orders", -1)):
        (state,), _ = served.answered(fetch(0, queue))
        assert state.code == ResponseCode.QUEUE_NOT_FOUND
    grave = {"orders": KeptGrave("forever", {0: 1})}
    served.keep_topics(KeptTopics({"orders": KeptTopic(1, "forever")}, grave))
    await served.copy()
    (state,), _ = served.answered(fetch(0))
    assert (state.code, state.first) == (ResponseCode.OFFSET_OUT_OF_RANGE, 1)
    assert served.answered(fetch(1))[1] == 1
    served.keep_topics(KeptTopics({"orders": KeptTopic(1, "forever", unreadable=(0,))}))
    await served.copy()
    (state,), _ = served.answered(fetch(0))
    assert state.code == ResponseCode.QUEUE_FROZEN
    # Of a topic that is spread, queues of other groups count as frozen in the file.
    elsewhere = KeptTopic(2, "forever", unwritable=(0,), unreadable=(0,), owned=(1,))
    served.keep_topics(KeptTopics({"orders": elsewhere}))
    await served.copy()
    (state,), _ = served.answered(fetch(0))
    assert state.code == ResponseCode.QUEUE_ELSEWHERE


@pytest.mark.parametrize("missing", [0, 1, 2])
async def test_a_replica_whose_log_is_damaged_serves_no_reads_of_it_until_it_is_repaired(
    served: Served, missing: int
) -> None:
    for number in range(1, 4):
        served.leader.append(number)
        await served.leader.until(lambda number=number: served.leader.end() == number)
    await served.copy()
    served.ask(hello())
    assert served.answered(fetch())[1] == 3
    damaged = entries(served.place)[missing]
    flip(served.place, damaged.position + 700)
    # Its reader cannot wait, so it leaves the batch out from now on.
    assert len(served.place.logs.store.read(QUEUE, missing, 1)) == (missing < 2)
    for offset in {0, 1, 2} - {missing}:
        assert "is damaged, and not repaired yet" in served.refused(fetch(offset))
    await served.copy(2)
    assert served.answered(fetch())[1] == 3


async def test_an_answer_to_a_read_is_small_because_the_leader_waits_meanwhile(
    served: Served,
) -> None:
    count = READ_BYTES_MAX // 2_000
    served.leader.append(*range(1, count))
    await served.leader.until(lambda: served.leader.end() == count - 1)
    await served.copy(40)
    served.ask(hello())
    _, batches = served.answered(fetch(bytes_max=4 << 20))
    assert 0 < batches < count - 1
    assert len(served.client.answers[-1][1]) < 2 * READ_BYTES_MAX


async def test_reads_for_the_leader_and_too_many_reads_are_refused(served: Served) -> None:
    served.leader.append(1)
    await served.leader.until(lambda: served.leader.end() == 1)
    await served.copy()
    served.ask(hello())
    for asked in (fetch(group="g"), fetch(bytes_max=0)):
        served.ask(asked)
        assert served.client.answers[-1][0] == ResponseCode.INVALID_ARGUMENT
    before = len(served.client.answers)
    for _ in range(READS_PER_CONNECTION_MAX):
        served.ask(fetch(1, wait_ms=60_000))
    assert len(served.client.answers) == before
    served.ask(fetch(1))
    assert "at the same time" in decode(ErrorAnswer, served.client.answers[-1][1]).sentence
    # A client that takes no answers gets none.
    served.client.congested = True
    client: Any = served.client
    served.standby.on_drained(client)
    await asyncio.sleep(0)
    assert len(served.client.answers) == before + 1
    served.standby.on_lost(client)
    await asyncio.sleep(0)
    served.client = Client()
    served.ask(frame(RequestCode.HELLO, Hello("id", 99, 99, "reader", reads=True)))
    assert served.client.answers[-1][0] == ResponseCode.UNSUPPORTED_VERSION
    served.client = Client()
    served.ask(hello())
    assert served.answered(fetch())[1] == 1


async def test_a_read_at_a_replica_counts_and_waits_for_the_quota_of_its_client(
    served: Served,
) -> None:
    served.leader.append(1, 2, 3)
    await served.leader.until(lambda: served.leader.end() == 3)
    file = limits_file(served.leader.settings.directory)
    file.write(KeptLimits({CLIENT: {"127.0.0.1": KeptQuota(fetch_messages=1)}}))
    served.followers.on_renamed(file.path)
    await served.copy()
    served.ask(hello())
    counts = served.reads.counts
    assert served.answered(fetch())[1] == 1, "as many as the quota has room for, and one at least"
    served.ask(fetch(1))
    assert len(served.client.answers) == 2, "held"
    served.clock.ms += 1_000
    await served.copy(1)
    counts.throttle.look()
    assert served.last() == ([FetchedQueue(*QUEUE, 0, 3)], 1)
    had = counts.fetched.by_name()["orders"]
    assert had.messages == 2
    assert had.bytes > 4_000
    assert sum(counts.fetch_times.read()[0]) == 2
    # One that is held meanwhile is answered like any other.
    served.ask(fetch(2))
    served.clock.ms += 1_000
    counts.throttle.look()
    code, body = served.client.answers[-1]
    assert code == ResponseCode.NOT_LEADER
    assert "has not heard" in decode(ErrorAnswer, body).sentence
    file.write(KeptLimits())
    served.followers.on_renamed(file.path)
    await served.copy()
    assert served.answered(fetch())[1] == 3


async def test_with_a_login_a_reader_reads_what_its_user_may(
    places: list[Place],
) -> None:
    served = Served(places, login=True)
    await served.begin()
    book = UserBook(users_file(served.leader.settings.directory))
    book.change(SetUser("add", "root", [credentials_of(SecretStr("a long pencil"))], admin=1))
    book.change(SetUser("add", "ann", [credentials_of(SecretStr("a long pencil"))]))
    served.followers.on_renamed(users_file(served.leader.settings.directory).path)
    served.leader.append(1)
    await served.leader.until(lambda: served.leader.end() == 1)
    await served.copy()
    served.ask(hello())
    assert decode(HelloAnswer, served.client.answers[-1][1]).login[0] == SCRAM
    assert served.client.frame_bytes_max == 0
    served.ask(fetch())
    assert served.client.answers[-1][0] == ResponseCode.LOGIN_FAILED
    served.client.user = "ann"
    served.ask(fetch())
    assert served.client.answers[-1][0] == ResponseCode.NOT_PERMITTED
    book.set_rule(RuleEntry("ann", "consume", "topic:orders", allows=True), remove=False)
    served.followers.on_renamed(users_file(served.leader.settings.directory).path)
    await served.copy()
    assert served.answered(fetch())[1] == 1
    asked = Frame(RequestCode.DESCRIBE_SETTINGS, PROTOCOL_VERSION, 0, 1, memoryview(b""))
    served.ask(asked)
    code, body = served.client.answers[-1]
    assert code == ResponseCode.NOT_PERMITTED
    assert "'ann' may not read cluster" in decode(ErrorAnswer, body).sentence
    served.client.user = "root"
    served.ask(asked)
    assert served.client.answers[-1][0] == ResponseCode.OK
    served.client.user = ""
    served.ask(asked)
    code, body = served.client.answers[-1]
    assert (code, "this broker" in decode(ErrorAnswer, body).sentence) == (
        ResponseCode.LOGIN_FAILED,
        True,
    )


async def test_a_replica_tells_its_own_settings(served: Served) -> None:
    served.leader.append(1)
    await served.leader.until(lambda: served.leader.end() == 1)
    await served.copy()
    served.ask(hello())
    served.ask(Frame(RequestCode.DESCRIBE_SETTINGS, PROTOCOL_VERSION, 0, 1, memoryview(b"")))
    code, body = served.client.answers[-1]
    assert code == ResponseCode.OK
    found = {one.name: one.value for one in decode(SettingsAnswer, body).settings}
    assert found["store.directory"] == str(served.place.settings.directory)
    assert found["group.replica_stale_ms_max"] == "100"


async def test_a_reader_logs_in_at_a_replica_of_a_running_group(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    group = Group(tmp_path, free_port)
    try:
        logged_in = LoggedIn(group, tmp_path)
        logged_in.first_administrator("a")
        for name in "ab":
            await logged_in.add(name)
        await group.until_in_sync(2)
        bodies = [b"%d" % number for number in range(9)]
        async with Producer(logged_in.address(), settings=PATIENT) as producer:
            for body in bodies:
                await producer.send(Message(topic="t", key="k", body=body))

        def read() -> bool:
            with BlockingReader(f"{logged_in.address()}&read_from=replica") as reader:
                found = []
                for one in reader.ranges(["t"]):
                    parts = reader.read(QueueRef("t", one.queue_id), one.first, one.end)
                    found += [
                        body for _, columns, *span in parts for body in columns.bodies[slice(*span)]
                    ]
                assert found == bodies
                assert reader._replicas is not None
                return reader._replicas.connection() is not None

        # At first the leader may serve it: the replica has to hear how much is committed.
        async with asyncio.timeout(120):
            while not await asyncio.to_thread(read):
                pass
    finally:
        for broker in list(group.brokers):
            await group.stop(broker)


async def test_a_replica_that_was_a_leader_counts_from_zero(served: Served) -> None:
    served.leader.append(1, 2)
    await served.leader.until(lambda: served.leader.end() == 2)
    await served.copy()
    served.ask(hello())
    assert served.answered(fetch())[1] == 2
    assert served.reads.counts.fetched.by_name()["orders"].messages == 2
    served.standby.begin("h:1")
    assert served.standby.address == "h:1"
    assert served.reads.counts.fetched.by_name() == {}
    assert sum(served.reads.counts.fetch_times.read()[0]) == 0
    assert served.answered(fetch(1))[1] == 1
    assert served.reads.counts.fetched.by_name()["orders"].messages == 1
