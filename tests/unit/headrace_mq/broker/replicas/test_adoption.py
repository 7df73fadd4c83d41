"""A broker that ran alone founds a group with its messages; killed at any step, its folder starts again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.metadata import archive_file, broker_file, group_file, users_file
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.broker.server import Broker
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.cluster.record import GroupRecord, Identity, Proposal, RecordUnavailable
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.access import SetUser
from headrace_mq.protocol.limits import Rates
from headrace_mq.settings import BrokerSettings, GroupSettings, ProducerSettings, StoreSettings
from headrace_mq.store.replication.epochs import EPOCHS_NAME, EpochFile

QUEUE = QueueRef("t", 0)
PATIENT = ProducerSettings(send_timeout_ms=60_000, reconnect_ms_min=20, reconnect_ms_max=100)
# On a busy machine this process may stand still for longer than a lease: then the other broker leads.
PATIENT_MS = 60_000


class Folders:
    """Brokers by the names of their folders, alone or in a group."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        self._folder = folder
        self._ports = {name: free_port() for name in "abc"}
        self.record = MemoryRecord()
        self.members: list[ReplicatedBroker] = []

    def path(self, name: str) -> Path:
        return self._folder / name

    def settings(self, name: str, group: GroupSettings | None = None) -> BrokerSettings:
        store = StoreSettings(directory=self.path(name), segment_bytes=64 * 1024)
        login = group is not None and group.user is not None
        return BrokerSettings(store=store, port=self._ports[name], group=group, login=login)

    def lone(self, name: str) -> Broker:
        return Broker(self.settings(name))

    async def start(self, name: str, user: str | None = None) -> ReplicatedBroker:
        """Starts a broker of the group; with a user, with a login."""
        file = None if user is None else Path("unused.txt")
        group = GroupSettings(record="postgresql://unused/record", user=user, password_file=file)
        made = ReplicatedBroker(self.settings(name, group), record=self.record)
        try:
            await made.start()
        except BaseException:
            await made.aclose()
            raise
        self.members.append(made)
        return made

    @property
    def address(self) -> str:
        """All members': any of them may lead by now."""
        return ",".join(one.address for one in self.members)

    async def until_in_sync(self, count: int) -> GroupRecord:
        async with asyncio.timeout(PATIENT_MS / 1_000):
            while len((await self.record.read()).in_sync) != count:
                await asyncio.sleep(0)
        return await self.record.read()


@pytest.fixture
async def folders(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Folders]:
    made = Folders(tmp_path, free_port)
    yield made
    for member in made.members:
        await member.aclose()


async def send(address: str, *bodies: bytes, retention: str = "transient") -> None:
    async with Producer(address, settings=PATIENT) as producer:
        await producer.create_topic("t", 1, retention=retention)
        for body in bodies:
            await producer.send(Message(topic="t", key="k", body=body))


async def read(address: str) -> list[tuple[int, bytes]]:
    """Every message with its offset."""
    async with AdminClient(address, timeout_ms=PATIENT_MS) as admin:
        end = sum(one.end for one in await admin.ranges(["t"]))
    async with PullConsumer(address, group="reader") as consumer:
        await consumer.assign([QUEUE])
        consumer.seek(QUEUE, 0)
        found: list[tuple[int, bytes]] = []
        while len(found) < end:
            found += [(one.offset, one.body) for one in await consumer.fetch(100, timeout_ms=5_000)]
    return found


async def run_alone(folders: Folders, name: str = "a", *bodies: bytes) -> None:
    """Runs a broker alone, twice, with messages, a topic without any, and an offset."""
    for part in (bodies[:1], bodies[1:]):
        async with folders.lone(name) as broker:
            await send(broker.address, *part)
            async with (
                AdminClient(broker.address) as admin,
                PullConsumer(broker.address, group="g") as one,
            ):
                await admin.create_topic("empty", queues=3)
                await one.assign([QUEUE])
                one.seek(QUEUE, 1)
                await one.commit()


async def test_a_broker_that_ran_alone_leads_a_group_with_its_messages_topics_and_offsets(
    folders: Folders,
) -> None:
    await run_alone(folders, "a", b"1", b"2", b"3")
    first = await folders.start("a")
    await send(first.address, b"4")
    record = await folders.record.read()
    # Above both starts that it had alone.
    assert (record.epoch, record.leader) == (3, first.address)
    second = await folders.start("b")
    await folders.until_in_sync(2)
    folders.members.remove(first)
    await first.aclose()
    assert await read(second.address) == [(0, b"1"), (1, b"2"), (2, b"3"), (3, b"4")]
    async with AdminClient(second.address) as admin:
        assert {one.topic: one.queues for one in await admin.topics()} == {"t": 1, "empty": 3}
        (queue,) = (await admin.lag("g", ["t"])).queues
        assert queue.lag == 3


async def killed(*_: object, **__: object) -> None:
    raise RecordUnavailable("as a kill at this step")


@pytest.mark.parametrize(
    "step", ["before the record", "after the record", "within the epochs", "after the epochs"]
)
@pytest.mark.parametrize("alone_between", [False, True])
async def test_a_folder_of_a_broker_that_was_killed_while_it_founded_a_group_starts_again(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, step: str, alone_between: bool
) -> None:
    await run_alone(folders, "a", b"1", b"2")
    with monkeypatch.context() as patch:
        if step == "before the record":
            folders.record.is_away = True
        elif step == "after the record":
            create = folders.record.create

            async def answerless(leader: Identity, in_sync: list[Identity], epoch: int) -> None:
                await create(leader, in_sync, epoch)
                await killed()

            patch.setattr(folders.record, "create", answerless)
        elif step == "within the epochs":

            def fails(*_: object) -> None:
                (folders.path("a") / f"{EPOCHS_NAME}.new").write_bytes(b"torn")
                raise OSError(5, "as a kill within the write")

            patch.setattr(EpochFile, "adopt", fails)
        else:
            patch.setattr("headrace_mq.broker.replicated_broker.ClusterMember", killed_at_once)
        with pytest.raises((MessageQueueError, OSError)):
            await folders.start("a")
    folders.record.is_away = False
    expected = [b"1", b"2"]
    if alone_between and step == "after the epochs":
        with pytest.raises(MessageQueueError, match="belongs to a group; start it with --record"):
            await folders.lone("a").start()
    elif alone_between:
        async with folders.lone("a") as broker:
            await send(broker.address, b"alone")
        expected.append(b"alone")
    await folders.start("a")
    await folders.start("b")
    await folders.until_in_sync(2)
    assert [body for _, body in await read(folders.address)] == expected


def killed_at_once(*_: object, **__: object) -> None:
    raise MessageQueueError("as a kill at this step")


async def test_a_broker_with_messages_of_its_own_is_refused_by_a_group_that_has_others(
    folders: Folders,
) -> None:
    await run_alone(folders, "b", b"other")
    first = await folders.start("a")
    await send(first.address, b"1")
    before = await folders.record.read()
    with pytest.raises(
        MessageQueueError, match=r"have made this group already.*choose another --group"
    ):
        await folders.start("b")
    assert await folders.record.read() == before
    # Nothing was changed: it runs alone as before.
    async with folders.lone("b") as broker:
        assert [body for _, body in await read(broker.address)] == [b"other"]


async def test_a_broker_whose_record_is_changed_meanwhile_is_refused(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_alone(folders, "a", b"1")
    create = folders.record.create

    async def low(leader: Identity, in_sync: list[Identity], _epoch: int) -> GroupRecord:
        made = await create(leader, in_sync, 1)
        await folders.record.propose(Proposal(made.version, 1, leader.name, frozenset(in_sync)))
        return made

    monkeypatch.setattr(folders.record, "create", low)
    with pytest.raises(MessageQueueError, match="another process starts with the same folder"):
        await folders.start("a")


async def test_a_broker_that_does_not_name_its_archive_founds_no_group(folders: Folders) -> None:
    await run_alone(folders, "a", b"1")
    archive_file(folders.path("a")).path.write_text("{}")
    with pytest.raises(MessageQueueError, match="are in an archive"):
        await folders.start("a")
    with pytest.raises(RecordUnavailable):
        await folders.record.read()


async def test_a_member_that_lost_its_epochs_must_copy_everything(folders: Folders) -> None:
    first = await folders.start("a")
    await send(first.address, b"1")
    folders.members.remove(first)
    await first.aclose()
    (folders.path("a") / EPOCHS_NAME).unlink()
    with pytest.raises(DataCorrupt, match="epochs is missing"):
        await folders.start("a")


async def test_a_broker_that_was_taken_out_of_its_group_has_messages_of_its_own(
    folders: Folders,
) -> None:
    first = await folders.start("a")
    await send(first.address, b"1")
    folders.members.remove(first)
    await first.aclose()
    group_file(folders.path("a")).path.unlink()
    async with folders.lone("a") as broker:
        await send(broker.address, b"alone")
    # It is no copy of what the group has at the same positions.
    with pytest.raises(MessageQueueError, match="choose another --group"):
        await folders.start("a")


async def test_a_broker_without_its_last_epoch_takes_a_later_one_from_the_clock(
    folders: Folders,
) -> None:
    await run_alone(folders, "a", b"1")
    broker_file(folders.path("a")).path.unlink()
    first = await folders.start("a")
    assert [body for _, body in await read(first.address)] == [b"1"]
    assert (await folders.record.read()).epoch > 1_000_000_000


async def test_a_broker_that_leaves_its_group_starts_above_the_epochs_of_others(
    folders: Folders,
) -> None:
    """The one that runs alone delivers its schedule with the same numbers again, and a group elects it."""
    await taken_out_after_a_failover(folders)
    epoch = (await folders.record.read()).epoch
    async with folders.lone("a") as broker:
        assert broker.state.store.epoch == epoch + 1


async def test_a_broker_that_leaves_its_group_founds_another_one_above_its_epochs(
    folders: Folders,
) -> None:
    await taken_out_after_a_failover(folders)
    epoch = (await folders.record.read()).epoch
    folders.record = MemoryRecord()
    first = await folders.start("a")
    await send(first.address, b"3")
    assert (await folders.record.read()).epoch > epoch
    await folders.start("c")
    await folders.until_in_sync(2)
    assert [body for _, body in await read(folders.address)] == [b"1", b"2", b"3"]


async def test_a_broker_that_was_taken_out_of_its_group_joins_no_other_one(
    folders: Folders,
) -> None:
    await taken_out_after_a_failover(folders)
    folders.record = MemoryRecord()
    await send((await folders.start("c")).address, b"other")
    with pytest.raises(MessageQueueError, match="start with an empty folder to join this one"):
        await folders.start("a")


async def taken_out_after_a_failover(folders: Folders) -> None:
    """Leaves `a` with messages of an epoch in which `b` led."""
    first = await folders.start("a")
    await send(first.address, b"1")
    second = await folders.start("b")
    await folders.until_in_sync(2)
    folders.members.remove(first)
    await first.aclose()
    await send(second.address, b"2")
    first = await folders.start("a")
    await folders.until_in_sync(2)
    for member in folders.members:
        await member.aclose()
    folders.members.clear()
    group_file(folders.path("a")).path.unlink()


async def test_a_broker_does_not_start_with_the_record_of_another_group_of_the_same_name(
    folders: Folders,
) -> None:
    first = await folders.start("a")
    await send(first.address, b"1")
    folders.members.remove(first)
    await first.aclose()
    own, folders.record = folders.record, MemoryRecord()
    await send((await folders.start("c")).address, b"other")
    before = await folders.record.read()
    with pytest.raises(MessageQueueError, match="check --record"):
        await folders.start("a")
    assert await folders.record.read() == before
    folders.record = own
    assert [body for _, body in await read((await folders.start("a")).address)] == [b"1"]


def damage_a_message(folder: Path, content: bytes) -> None:
    """Changes a bit of a stored message."""
    for path in folder.rglob("*.log"):
        found = bytearray(path.read_bytes())
        if (at := found.find(content)) >= 0:
            found[at] ^= 1
            path.write_bytes(bytes(found))
            return
    raise AssertionError("no log has it")


async def test_no_group_is_founded_on_a_damaged_log(folders: Folders) -> None:
    """No replica takes the damaged message, so none would ever enter."""
    await run_alone(folders, "a", b"1", b"two messages", b"3")
    damage_a_message(folders.path("a"), b"two messages")
    with pytest.raises(
        DataCorrupt, match=r"has 1 damaged places.*run this broker without --record.*store check"
    ):
        await folders.start("a")
    with pytest.raises(RecordUnavailable):
        await folders.record.read()
    # Nothing was changed: it runs alone as before, without that message.
    async with folders.lone("a") as broker:
        await send(broker.address, b"4")
        async with PullConsumer(broker.address, group="reader") as consumer:
            await consumer.assign([QUEUE])
            consumer.seek(QUEUE, 0)
            found: list[bytes] = []
            while b"4" not in found:
                found += [one.body for one in await consumer.fetch(100, timeout_ms=5_000)]
    assert found == [b"1", b"3", b"4"]


@pytest.mark.parametrize("holds", ["topics", "users", "limits", "topics and limits"])
async def test_a_broker_with_settings_of_its_own_and_no_message_loses_them_to_no_group(
    folders: Folders, holds: str
) -> None:
    async with folders.lone("b") as broker, AdminClient(broker.address) as admin:
        if "topics" in holds:
            await admin.create_topic("own", queues=3)
        if "limits" in holds:
            await admin.set_quota("client", "c", Rates(produce_bytes=1_000))
    if holds == "users":
        UserBook(users_file(folders.path("b"))).change(SetUser("add", "root", [], admin=1))
    first = await folders.start("a")
    await send(first.address, b"1")
    before = {path: path.read_bytes() for path in (folders.path("b") / "metadata").iterdir()}
    with pytest.raises(MessageQueueError, match=f"this folder holds {holds} of its own.*empty"):
        await folders.start("b", "root" if holds == "users" else None)
    for path, content in before.items():
        assert path.read_bytes() == content
    assert {one.name for one in (await folders.record.read()).in_sync} == {first.address}


async def test_a_broker_with_topics_and_no_message_founds_a_group_with_them(
    folders: Folders,
) -> None:
    async with folders.lone("a") as broker, AdminClient(broker.address) as admin:
        await admin.create_topic("own", queues=3)
    first = await folders.start("a")
    await folders.start("b")
    await folders.until_in_sync(2)
    async with AdminClient(first.address) as admin:
        assert {one.topic: one.queues for one in await admin.topics()} == {"own": 3}
    # It starts again as any member.
    for member in reversed(folders.members):
        await member.aclose()
    folders.members.clear()
    await folders.start("a")


async def test_a_broker_that_only_ran_once_joins_a_group(folders: Folders) -> None:
    async with folders.lone("b"):
        pass
    first = await folders.start("a")
    await send(first.address, b"1")
    await folders.start("b")
    await folders.until_in_sync(2)


@pytest.mark.parametrize("then", ["alone", "another group"])
async def test_a_broker_that_leaves_its_group_needs_no_epochs(folders: Folders, then: str) -> None:
    """All that it holds is of one epoch then, above all others."""
    await taken_out_after_a_failover(folders)
    path = folders.path("a") / EPOCHS_NAME
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    if then == "alone":
        async with folders.lone("a") as broker:
            assert broker.state.store.epoch > 1_000_000_000
            assert [body for _, body in await read(broker.address)] == [b"1", b"2"]
        return
    folders.record = MemoryRecord()
    first = await folders.start("a")
    assert (await folders.record.read()).epoch > 1_000_000_000
    await send(first.address, b"3")
    await folders.start("c")
    await folders.until_in_sync(2)
    assert [body for _, body in await read(folders.address)] == [b"1", b"2", b"3"]


async def test_a_member_with_damaged_epochs_hears_how_to_go_on(folders: Folders) -> None:
    first = await folders.start("a")
    await send(first.address, b"1")
    folders.members.remove(first)
    await first.aclose()
    (folders.path("a") / EPOCHS_NAME).write_bytes(b"torn")
    with pytest.raises(DataCorrupt, match=r"from an empty directory.*remove metadata/group.json"):
        await folders.start("a")
