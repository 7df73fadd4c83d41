"""Brokers of one group in one process, with their record in memory."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from headrace.cli import _command_line
from headrace_mq._net.login import credentials_of, read_password
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.metadata import group_file, users_file
from headrace_mq.broker.replicas.progress import progress
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.broker.server import Broker
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.client.producer.producer import Producer
from headrace_mq.cluster.record import GroupRecord, OutcomeUnknown, Proposal
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import InvalidArgument, LoginFailed, MessageQueueError
from headrace_mq.message import Message
from headrace_mq.protocol.access import SetUser
from headrace_mq.settings import BrokerSettings, GroupSettings, ProducerSettings, StoreSettings

PATIENT = ProducerSettings(send_timeout_ms=60_000, reconnect_ms_min=20, reconnect_ms_max=100)


class Group:
    """Brokers that share a record."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        self._free_port = free_port
        self.record = MemoryRecord()
        self.brokers: list[ReplicatedBroker] = []
        self._folder = folder
        self._ports: dict[str, int] = {}

    async def add(
        self,
        name: str,
        *,
        user: str | None = None,
        password_file: Path | None = None,
        **secured: Path,
    ) -> ReplicatedBroker:
        """Starts one more; with files of TLS, the last one is the authority of the others; with a user, with a login."""
        ca = secured.get("tls_client_ca")
        settings = BrokerSettings(
            **secured,  # type: ignore[arg-type]  # each is a path
            store=StoreSettings(directory=self._folder / name, segment_bytes=64 * 1024),
            port=self._ports.setdefault(name, self._free_port()),
            login=user is not None,
            group=GroupSettings(
                record="postgresql://unused/record", ca=ca, user=user, password_file=password_file
            ),
        )
        broker = ReplicatedBroker(settings, record=self.record)
        self.brokers.append(broker)
        try:
            await broker.start()
        except BaseException:
            await self.stop(broker)
            raise
        return broker

    @property
    def address(self) -> str:
        """Of all that run."""
        return ",".join(one.address for one in self.brokers)

    async def until_in_sync(self, count: int) -> None:
        """Returns when the set has so many members."""
        async with asyncio.timeout(120):
            while True:
                record = self.record._record
                if record is not None and len(record.in_sync) == count:
                    return
                await asyncio.sleep(0)

    async def leader(self) -> ReplicatedBroker:
        """The one that serves clients."""
        async with AdminClient(self.address, timeout_ms=60_000) as admin:
            described = await admin.describe()
        return next(one for one in self.brokers if one.address == described.broker)

    async def stop(self, broker: ReplicatedBroker) -> None:
        """Stops one in order."""
        self.brokers.remove(broker)
        await broker.aclose()


@pytest.fixture
async def group(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Group]:
    made = Group(tmp_path, free_port)
    yield made
    for broker in list(made.brokers):
        await made.stop(broker)


async def send(group: Group, *bodies: bytes) -> None:
    async with Producer(group.address, settings=PATIENT) as producer:
        for body in bodies:
            await producer.send(Message(topic="t", key="k", body=body))


async def end_of(group: Group) -> int:
    async with AdminClient(group.address, timeout_ms=60_000) as admin:
        return sum(one.end for one in await admin.ranges(["t"]))


async def test_a_first_broker_leads_alone_and_keeps_its_messages(group: Group) -> None:
    await group.add("a")
    await send(group, b"1", b"2")
    await group.stop(group.brokers[0])
    await group.add("a")
    assert await end_of(group) == 2


async def test_a_replica_takes_over_when_its_leader_stops(group: Group) -> None:
    first = await group.add("a")
    assert await group.leader() is first
    await group.add("b")
    await group.until_in_sync(2)
    await send(group, b"1", b"2", b"3")
    assert (first.state is not None, first.figures().leads) == (True, True)
    assert [one.in_sync for one in first.figures().replicas] == [True]
    await group.stop(first)
    assert first.state is None
    assert await end_of(group) == 3
    await send(group, b"4")
    await group.add("a")
    await group.until_in_sync(2)
    assert await end_of(group) == 4


async def trio(group: Group) -> list[ReplicatedBroker]:
    """Three brokers in sync; the first one leads."""
    brokers = [await group.add("a")]
    await group.leader()
    brokers += [await group.add(name) for name in "bc"]
    await group.until_in_sync(3)
    return brokers


async def hand_over(group: Group, to: str) -> None:
    """Returns when another broker leads; the old one waits for it, on a busy machine as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{ReplicatedBroker.__module__}.HAND_OVER_MS_MAX", 60_000)
        async with AdminClient(group.address, timeout_ms=60_000) as admin:
            assert await admin.hand_over(to) == to
        async with asyncio.timeout(120):
            while (await group.record.read()).leader != to:
                await asyncio.sleep(0)


async def test_a_replica_leads_when_the_leader_is_asked_to_hand_over(group: Group) -> None:
    _, _, last = await trio(group)
    await send(group, b"1")
    await hand_over(group, last.address)
    assert await group.leader() is last
    await send(group, b"2")
    assert await end_of(group) == 2
    # Nothing was lost or taken out: the old leader is a replica in sync.
    await group.until_in_sync(3)


async def test_only_a_replica_in_sync_is_handed_over_to(group: Group) -> None:
    first, second, _ = await trio(group)
    async with AdminClient(group.address) as admin:
        for name in ("h:1", first.address):
            with pytest.raises(InvalidArgument, match=second.address):
                await admin.hand_over(name)
    assert await group.leader() is first


async def test_a_broker_without_a_group_hands_nothing_over(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    store = StoreSettings(directory=tmp_path / "lone")
    broker = Broker(BrokerSettings(store=store, port=free_port()))
    await broker.start()
    async with AdminClient(broker.address) as admin:
        with pytest.raises(InvalidArgument, match="--record"):
            await admin.hand_over()
    await broker.aclose()


async def test_a_leader_goes_on_if_no_other_one_leads_in_time(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{ReplicatedBroker.__module__}.HAND_OVER_MS_MAX", 100)
    first, _, _ = await trio(group)
    group.record.is_away = True
    async with AdminClient(group.address) as admin:
        await admin.hand_over()
    # Refused while it hands over, accepted after.
    await send(group, b"1")
    group.record.is_away = False
    assert await end_of(group) == 1
    assert await group.leader() is first


async def test_a_leader_goes_on_while_the_record_is_away(group: Group) -> None:
    await group.add("a")
    await group.leader()
    await group.add("b")
    await group.until_in_sync(2)
    group.record.is_away = True
    await send(group, b"1")
    async with asyncio.timeout(120):
        # It is read each second.
        while min(one.figures().record_silent_ms for one in group.brokers) < 1_200:
            await asyncio.sleep(0)
        group.record.is_away = False
        while max(one.figures().record_silent_ms for one in group.brokers) > 1_200:
            await asyncio.sleep(0)
    assert await end_of(group) == 1


async def test_a_leader_that_reaches_no_other_serves_no_longer_and_leads_again_with_the_record(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a replica waits for something new.
    monkeypatch.setattr(progress, "ALONE_LAG_MS_MAX", 1_000)
    monkeypatch.setattr(progress, "CUT_OFF_MS_MIN", 100)
    first = await group.add("a")
    await group.leader()
    second = await group.add("b")
    await group.until_in_sync(2)
    await send(group, b"1")
    group.record.is_away = True
    await group.stop(second)
    async with asyncio.timeout(120):
        while first.figures().leads:
            await asyncio.sleep(0)
    epoch = first.figures().epoch
    group.record.is_away = False
    await send(group, b"2")
    assert (first.figures().leads, first.figures().epoch) == (True, epoch + 1)
    assert await end_of(group) == 2


async def test_a_lost_answer_of_the_record_makes_one_leader_all_the_same(group: Group) -> None:
    group.record.loses_answers = True
    await group.add("a")
    await send(group, b"1")
    group.record.loses_answers = False
    assert await end_of(group) == 1


async def test_a_record_that_went_back_elects_no_one(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    await group.add("a")
    await group.leader()
    assert group.record._record is not None
    group.record._record = group.record._record._replace(version=1, epoch=1)
    async with asyncio.timeout(120):
        while "older than one that was seen" not in caplog.text:
            await asyncio.sleep(0)
    await send(group, b"1")


async def test_an_address_in_use_is_said(group: Group, tmp_path: Path) -> None:
    first = await group.add("a")
    settings = BrokerSettings(
        store=StoreSettings(directory=tmp_path / "x"), port=int(first.address.rpartition(":")[2]),
        group=GroupSettings(record="postgresql://unused/record"),
    )  # fmt: skip
    with pytest.raises(MessageQueueError, match=r"cannot listen on .*stop what uses the port"):
        await ReplicatedBroker(settings, record=group.record).start()


async def test_a_broker_remembers_its_group(group: Group, tmp_path: Path) -> None:
    broker = await group.add("a")
    await group.leader()
    kept = group_file(tmp_path / "a").read()
    assert kept is not None
    assert kept.seen is not None
    assert kept.seen.leader == broker.address


async def test_brokers_follow_each_other_over_tls_with_their_certificates(
    group: Group, tmp_path: Path
) -> None:
    folder = tmp_path / "tls"
    made = CliRunner().invoke(_command_line(), ["certificates", "make", str(folder)])
    assert made.exit_code == 0
    files = {
        "tls_certificate": folder / "server.pem",
        "tls_key": folder / "server.key",
        "tls_client_ca": folder / "ca.pem",
    }
    first = await group.add("a", **files)
    options = f"?ca={folder}/ca.pem&certificate={folder}/client.pem&key={folder}/client.key"
    await group.until_in_sync(1)
    await group.add("b", **files)
    await group.until_in_sync(2)
    async with Producer(f"tls://{group.address}{options}", settings=PATIENT) as producer:
        await producer.send(Message(topic="t", key="k", body=b"1"))
        await group.stop(first)
        await producer.send(Message(topic="t", key="k", body=b"2"))
        async with AdminClient(f"tls://{group.address}{options}") as admin:
            assert sum(one.end for one in await admin.ranges(["t"])) == 2


class LoggedIn:
    """A group with a login: the addresses of its brokers with a user."""

    def __init__(self, group: Group, folder: Path) -> None:
        self.group = group
        self.password = folder / "password.txt"
        self.password.write_text("a long pencil\n")
        self.password.chmod(0o600)
        self._folder = folder

    def first_administrator(self, name: str) -> None:
        """As `headrace user add --data`: before the first start of a folder."""
        store = self._folder / name
        (store / "metadata").mkdir(parents=True)
        book = UserBook(users_file(store))
        kept = credentials_of(read_password(self.password))
        book.change(SetUser("add", "root", [kept], admin=1))

    async def add(self, name: str, password: Path | None = None) -> ReplicatedBroker:
        return await self.group.add(name, user="root", password_file=password or self.password)

    def address(self, user: str = "root") -> str:
        return f"tcp://{self.group.address}?user={user}&password_file={self.password}"


@pytest.fixture
def logged_in(group: Group, tmp_path: Path) -> LoggedIn:
    return LoggedIn(group, tmp_path)


async def test_users_of_a_group_outlive_the_loss_of_its_leader(logged_in: LoggedIn) -> None:
    group = logged_in.group
    logged_in.first_administrator("a")
    first = await logged_in.add("a")
    async with AdminClient(logged_in.address()) as admin:
        await admin.add_user("ann", read_password(logged_in.password))
        await admin.set_rule("ann", "publish", "topic:t", allows=True)
        await admin.set_rule("ann", "create", "topic:t", allows=True)
    await logged_in.add("b")
    await logged_in.add("c")
    await group.until_in_sync(3)
    async with Producer(logged_in.address("ann"), settings=PATIENT) as producer:
        await producer.send(Message(topic="t", key="k", body=b"1"))
        await group.stop(first)
        await producer.send(Message(topic="t", key="k", body=b"2"))
    async with AdminClient(logged_in.address()) as admin:
        assert [one.name for one in await admin.users()] == ["ann", "root"]
        assert sum(one.end for one in await admin.ranges(["t"])) == 2
    with pytest.raises(LoginFailed):
        await end_of(group)
    # It comes back as a replica, by the password that it was given.
    await logged_in.add("a")
    await group.until_in_sync(3)


async def test_a_lone_broker_with_a_login_takes_its_users_audit_and_schedule_into_a_group(
    logged_in: LoggedIn, tmp_path: Path
) -> None:
    logged_in.first_administrator("a")
    store = StoreSettings(directory=tmp_path / "a", segment_bytes=64 * 1024)
    async with Broker(BrokerSettings(store=store, port=0, login=True)) as lone:
        where = f"tcp://{lone.address}?user=root&password_file={logged_in.password}"
        async with AdminClient(where) as admin, Producer(where, settings=PATIENT) as producer:
            await admin.add_user("ann", read_password(logged_in.password))
            await producer.send(Message(topic="t", key="k", body=b"1"))
            await producer.schedule(Message(topic="t", key="k", body=b"later"), delay_ms=3_600_000)
            kept = await admin.audit(100)
    first = await logged_in.add("a")
    async with AdminClient(logged_in.address()) as admin:
        assert (await admin.scheduled()).pending == 1
    await logged_in.add("b")
    await logged_in.group.until_in_sync(2)
    await logged_in.group.stop(first)
    async with AdminClient(logged_in.address()) as admin:
        assert [one.name for one in await admin.users()] == ["ann", "root"]
        assert (await admin.scheduled()).pending == 1
        assert kept
        assert (await admin.audit(100))[: len(kept)] == kept
        assert [one.end for one in await admin.ranges(["t"])].count(1) == 1


async def test_a_broker_with_a_wrong_password_does_not_follow(
    logged_in: LoggedIn, tmp_path: Path
) -> None:
    logged_in.first_administrator("a")
    await logged_in.add("a")
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("a short pencil\n")
    wrong.chmod(0o600)
    with capture_logs() as lines:
        second = await logged_in.add("b", wrong)
        async with asyncio.timeout(120):
            while not any("password" in str(one.get("reason")) for one in lines):
                await asyncio.sleep(0)
    assert second._member.leadership is None
    record = logged_in.group.record._record
    assert record is not None
    assert len(record.in_sync) == 1


async def test_a_broker_with_an_emptied_folder_copies_everything_and_enters_as_another_member(
    group: Group, tmp_path: Path
) -> None:
    await trio(group)
    await send(group, b"1", b"2")
    for turn in ("replica", "leader"):
        leader = await group.leader()
        gone = next(one for one in group.brokers if (one is leader) == (turn == "leader"))
        name = next(
            name for name, port in group._ports.items() if gone.address.endswith(f":{port}")
        )
        before = gone._member.me
        await group.stop(gone)
        shutil.rmtree(tmp_path / name)
        again = await group.add(name)
        assert again._member.me.name == before.name
        async with asyncio.timeout(120):
            while again._member.me not in (await group.record.read()).in_sync:
                await asyncio.sleep(0)
        assert before not in (await group.record.read()).in_sync
        await group.until_in_sync(3)
        await hand_over(group, again.address)
        assert await end_of(group) == 2


async def test_a_broker_without_a_record_stands_now_and_then_and_not_all_the_time(
    group: Group,
) -> None:
    first = await group.add("a")
    await group.leader()
    second = await group.add("b")
    # It may stand once it has read that it is in the set.
    async with asyncio.timeout(120):
        while second._member.seen is None or len(second._member.seen.in_sync) < 2:
            await asyncio.sleep(0)
    proposals: list[Proposal] = []

    async def away(proposal: Proposal, _group_id: str) -> GroupRecord:
        proposals.append(proposal)
        raise OutcomeUnknown("the record is away")

    group.record.propose = away  # type: ignore[method-assign]  # as a database that does not answer
    group.record.is_away = True
    await group.stop(first)
    # The one that stopped may have asked it to lead.
    proposals.clear()
    begin = time.monotonic()
    async with asyncio.timeout(120):
        while len(proposals) < 6:
            await asyncio.sleep(0)
    # Five pauses between six of them.
    assert time.monotonic() - begin > 0.8


async def test_a_folder_of_a_lone_broker_without_messages_becomes_one_of_a_group(
    group: Group, tmp_path: Path
) -> None:
    store = StoreSettings(directory=tmp_path / "a")
    async with (
        Broker(BrokerSettings(store=store, port=0)) as lone,
        AdminClient(lone.address) as admin,
    ):
        await admin.create_topic("t", queues=3)
    await group.add("a")
    async with AdminClient(group.address) as admin:
        assert {one.topic: one.queues for one in await admin.topics()} == {"t": 3}


async def test_a_folder_of_a_lone_broker_and_one_of_a_group_are_kept_apart(
    group: Group, tmp_path: Path
) -> None:
    store = StoreSettings(directory=tmp_path / "lone")
    async with (
        Broker(BrokerSettings(store=store, port=0)) as lone,
        Producer(lone.address) as producer,
    ):
        await producer.send(Message(topic="t", body=b"1"))
    member = await group.add("a")
    await group.leader()
    with pytest.raises(MessageQueueError, match="start with an empty folder"):
        await group.add("lone")
    await group.stop(member)
    store = StoreSettings(directory=tmp_path / "a")
    with pytest.raises(MessageQueueError, match="start it with --record"):
        await Broker(BrokerSettings(store=store, port=0)).start()
