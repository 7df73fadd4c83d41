"""The audit of a real broker: what stands in it, that it outlives a kill and a leader, and that it has a bound."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from headrace_mq import AdminClient, Consumer, Message, Producer, QueueRef
from headrace_mq.access.audit import AUDIT_TOPIC, LEFT_OUT, AuditEntry
from headrace_mq.broker.server import Broker
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.errors import (
    ConnectionLost,
    InvalidArgument,
    LoginFailed,
    NotPermitted,
    QueueFrozen,
)
from headrace_mq.protocol.limits import Rates
from headrace_mq.settings import BrokerSettings, ConsumerSettings, ProducerSettings, StoreSettings
from headrace_mq.testing.embedded import SEGMENT_BYTES, memory_disk
from tests.integration.mq.broker_group import Group, running
from tests.integration.mq.secured_broker import PASSWORD, QUICK, Door, guarded
from tests.integration.mq.test_broker_group import trio

KILLS = 5
MISTYPED = "a loud stencil"
RELEASES = 5


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with guarded() as running:
        yield running


@pytest.fixture
def door(tmp_path: Path, broker: Broker) -> Door:
    folder = tmp_path / "passwords"
    folder.mkdir()
    return Door(folder, broker)


async def entries(address: str, count: int = 1_000, **chosen: Any) -> list[AuditEntry]:
    async with AdminClient(address) as admin:
        return await admin.audit(count, **chosen)


def told(found: list[AuditEntry]) -> list[tuple[str, ...]]:
    return [(one.user, one.action, one.resource, one.outcome) for one in found]


async def test_every_change_every_failed_login_and_every_refusal_stands_in_the_audit(
    door: Door,
) -> None:
    root, ann = door.of("root"), await door.add("ann", "consume topic:orders")
    async with AdminClient(root) as admin:
        await admin.create_topic("orders", 2)
        await admin.freeze("orders", writing=True, reading=True)
        await admin.reset_offsets("g", "latest", topics=["orders"])
        await admin.set_quota("client", "10.0.0.9", Rates(1, 1, 1, 1))
        await admin.delete_group("g")
        await admin.delete_queues("orders", dry_run=True)
        await admin.delete_queues("orders")
        await admin.remove_rule("ann", "consume", "topic:orders")
        await admin.set_rule("role:clerks", "read", "cluster", allows=True)
        await admin.change_user("ann", disabled=True)
        await admin.change_user("ann", disabled=False)
        async with AdminClient(ann) as client:
            for refused in (client.create_topic("bills", 1), client.users(), client.status()):
                with pytest.raises(NotPermitted):
                    await refused
        with pytest.raises(LoginFailed):
            await AdminClient(door.of("ann", MISTYPED)).start()
        async with Producer(root, ProducerSettings(**QUICK)) as producer:
            await producer.send(Message(topic="made", body=b"the body of a message"))
        found = await admin.audit(1_000)
    assert [one for one in told(found) if one[1] != "login"] == [
        ("root", "set_user", "user:ann", "done"),
        ("root", "set_rule", "user:ann", "done"),
        ("root", "create_topic", "topic:orders", "done"),
        ("root", "freeze_queues", "topic:orders", "done"),
        ("root", "reset_offsets", "group:g", "done"),
        ("root", "set_quota", "cluster", "done"),
        ("root", "delete_group", "group:g", "done"),
        ("root", "delete_queues", "topic:orders", "done"),
        ("root", "set_rule", "user:ann", "done"),
        ("root", "set_rule", "role:clerks", "done"),
        ("root", "set_user", "user:ann", "done"),
        ("root", "set_user", "user:ann", "done"),
        ("ann", "create_topic", "topic:bills", "refused"),
        ("ann", "list_users", "cluster", "refused"),
        ("ann", "broker_status", "cluster", "refused"),
        ("root", "describe_topics", "topic:made", "done"),
    ]
    assert ("", "login", "user:ann", "failed") in told(found)
    assert all(one.address.startswith("127.0.0.1:") and one.at_ms > 0 for one in found)
    written = b"".join(one.encode() for one in found)
    assert PASSWORD.encode() not in written
    assert b"the body" not in written
    assert MISTYPED.encode() not in written


async def test_a_change_that_is_done_at_once_stands_in_the_audit_each_time(
    door: Door, broker: Broker
) -> None:
    async with AdminClient(door.of("root")) as admin:
        await admin.create_topic("events", 1, retention="forever")
        for _ in range(RELEASES):
            await admin.release("events", {0: 0})
        found = await admin.audit(1_000, chosen=lambda one: one.action == "release_messages")
    assert told(found) == [("root", "release_messages", "topic:events", "done")] * RELEASES
    assert broker._state is not None
    assert broker._state.audit is not None
    assert broker._state.audit._later == {}


async def test_entries_are_chosen_by_time_by_user_and_by_number(door: Door) -> None:
    root, ann = door.of("root"), await door.add("ann", "read cluster")
    first = await entries(ann)
    assert {one.user for one in first} == {"root", "ann"}
    assert await entries(root, since_ms=first[-1].at_ms + 1_000_000) == []
    assert (await entries(ann, 1))[0].action == "login"
    by_ann = await entries(root, chosen=lambda one: one.is_about("ann"))
    assert ("root", "set_user", "user:ann", "done") in told(by_ann)
    assert ("root", "set_rule", "user:ann", "done") in told(by_ann)
    for count in (0, 100_001):
        with pytest.raises(ValueError, match="count is 1 to"):
            await entries(root, count)


async def test_new_entries_are_followed_as_they_come(door: Door) -> None:
    async with AdminClient(door.of("root")) as admin, AdminClient(door.of("root")) as other:
        following = admin.follow_audit(1)
        assert (await anext(following)).action == "login"
        coming = asyncio.ensure_future(anext(following))
        await other.create_topic("orders", 1)
        assert (await coming).resource == "topic:orders"
        await following.aclose()


async def test_any_consumer_reads_the_audit_with_the_right_to_read_the_cluster(door: Door) -> None:
    siem = await door.add("siem", "read cluster", "consume group:siem", "read group:siem")
    settings = ConsumerSettings(start="earliest", **QUICK)
    async with Consumer(siem, group="siem", topics=[AUDIT_TOPIC], settings=settings) as consumer:
        found: list[AuditEntry] = []
        while not any(one.resource == "user:siem" for one in found):
            found += [AuditEntry.decode(one.body) for one in await consumer.poll()]
    poor = await door.add("poor", "consume topic:*", "read topic:*")
    with pytest.raises(NotPermitted, match="read cluster"):
        await entries(poor)


async def test_no_client_writes_to_the_audit_however_it_tries(door: Door) -> None:
    async with AdminClient(door.of("root")) as admin:
        for attempt in (
            admin.delete_queues(AUDIT_TOPIC), admin.freeze(AUDIT_TOPIC, reading=True),
            admin.thaw(AUDIT_TOPIC, writing=True), admin.create_topic(AUDIT_TOPIC, 9, retention="compact"),
        ):  # fmt: skip
            with pytest.raises(NotPermitted, match="the broker alone changes it"):
                await attempt
        found = await admin.explain("root", "publish", f"topic:{AUDIT_TOPIC}")
        assert not found.allowed
        await door.add("poor")
        found = await admin.explain("poor", "read", f"topic:{AUDIT_TOPIC}")
        assert found.allowed
        async with Producer(door.of("root"), ProducerSettings(**QUICK)) as producer:
            with pytest.raises(NotPermitted, match="the broker alone changes it"):
                await producer.send(Message(topic=AUDIT_TOPIC, body=b"forged"))
            with pytest.raises(InvalidArgument, match="itself"):
                await producer.schedule(Message(topic=AUDIT_TOPIC, body=b"forged"), delay_ms=1)
        assert b"forged" not in b"".join(one.encode() for one in await admin.audit(1_000))


async def test_the_audit_of_an_earlier_start_stays_closed_without_a_login(tmp_path: Path) -> None:
    store = StoreSettings(directory=tmp_path, segment_bytes=SEGMENT_BYTES)
    async with Broker(BrokerSettings(store=store, port=0, audit=True)) as broker:
        async with AdminClient(broker.address) as admin:
            await admin.create_topic("orders", 1)
        async with Producer(broker.address, ProducerSettings(**QUICK)) as producer:
            with pytest.raises(NotPermitted):
                await producer.send(Message(topic=AUDIT_TOPIC, body=b"forged"))
    async with Broker(BrokerSettings(store=store, port=0)) as broker:
        settings = ProducerSettings(send_timeout_ms=20_000, **QUICK)
        async with Producer(broker.address, settings) as producer:
            with pytest.raises((NotPermitted, QueueFrozen)):
                await producer.send(Message(topic=AUDIT_TOPIC, body=b"forged"))
        entry, *refused = await entries(broker.address)
        assert {one.outcome for one in refused} == {"refused"}
        assert (entry.user, entry.action, entry.resource) == ("", "create_topic", "topic:orders")


async def test_a_broker_without_an_audit_says_how_to_have_one(tmp_path: Path) -> None:
    store = StoreSettings(directory=tmp_path, segment_bytes=SEGMENT_BYTES)
    async with Broker(BrokerSettings(store=store, port=0)) as broker:
        with pytest.raises(InvalidArgument, match="keeps no audit; start it with --login"):
            await entries(broker.address)


async def test_a_flood_of_failed_logins_has_a_bound_and_says_what_it_left_out(
    tmp_path: Path,
) -> None:
    async with guarded(audit_per_second_max=2) as broker:
        door = Door(tmp_path, broker)
        wrong = door.of("eve", "wrong")
        for _ in range(12):
            with pytest.raises(LoginFailed):
                await AdminClient(wrong).start()
        root = door.of("root")
        assert broker._state is not None
        assert broker._state.audit is not None
        broker._state.audit.look(ending=True)
        async with AdminClient(root) as admin:
            found = await admin.audit(1_000, chosen=lambda one: one.outcome != "done")
        assert sum(one.more or 1 for one in found if one.outcome in {LEFT_OUT, "failed"}) == 12
        assert len(found) < 12


async def test_the_last_entries_stay_and_the_disk_has_a_bound() -> None:
    disk, kept_max = memory_disk(), 100
    stored = {
        "compact_segment_bytes": 64 << 10, "compact_lag_ms": 0, "compact_interval_ms": 1,
        "compact_bytes_per_s": 0,
    }  # fmt: skip
    async with guarded(disk, stored=stored, audit_entries_max=kept_max) as broker:
        state = broker._state
        assert state is not None
        assert state.audit is not None

        class Caller:
            user, principal, peer, host = "root", "", "10.0.0.1:1", "10.0.0.1"

        client: Any = Caller()
        for number in range(5_000):
            state.audit.note(client, "set_rule", "done", detail=str(number))
            if number % 100 == 0:
                await state.store.durable()
        async with asyncio.timeout(120):
            while sum(one.bytes for one in state.store.segments("compact")) > 4 * (64 << 10):
                await asyncio.sleep(0)
        queue, end = QueueRef(AUDIT_TOPIC, 0), 5_000
        assert state.store.range(queue)[1] == end
        found = state.store.read(queue, end - kept_max, 1 << 20)
        assert len(found) == kept_max


async def test_a_change_that_was_answered_stands_in_the_audit_after_a_kill(
    tmp_path: Path, start_broker: Any
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    add_user(directory, "root", SecretStr(PASSWORD), admin=True)
    broker = await start_broker(directory, login=True)
    folder = tmp_path / "passwords"
    folder.mkdir()
    for number in range(KILLS):
        address = Door(folder, broker).of("root")
        async with AdminClient(address) as admin:
            await admin.create_topic(f"t{number}", 1)
            await broker.kill()
        await broker.start()
        made = [one.resource for one in await entries(address) if one.action == "create_topic"]
        assert made == [f"topic:t{one}" for one in range(number + 1)]


@pytest.fixture
async def audited_group(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[Group]:
    trio_with_audit = trio(tmp_path, free_port, postgres_database, "--set", "audit=true")
    async with running(trio_with_audit) as made:
        yield made


async def test_the_audit_of_a_group_outlives_its_leader(audited_group: Group) -> None:
    leader = await audited_group.leader()
    async with AdminClient(leader.address) as admin:
        await admin.create_topic("orders", 2)
        await admin.hand_over()
    async with asyncio.timeout(120):
        while (await audited_group.record.read()).leader == leader.address:
            await asyncio.sleep(0)
    await audited_group.in_sync()
    await (await audited_group.leader()).end()
    while True:
        try:
            async with AdminClient(audited_group.address, timeout_ms=30_000) as admin:
                found = await admin.audit(100)
                break
        except ConnectionLost:
            continue
    made = [one for one in found if one.action == "create_topic"]
    assert [one.resource for one in made] == ["topic:orders"]
    assert {one.action for one in found} >= {"follow", "create_topic", "hand_over"}
