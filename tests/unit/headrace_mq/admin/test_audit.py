"""Reading the audit of a broker that keeps one without a login."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_mq.access.audit import AUDIT_TOPIC, CHANGES, AuditEntry
from headrace_mq.admin.audit import AUDIT_LISTED_MAX
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import BrokerSettings, StoreSettings


@pytest.fixture
async def audited(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path / "audited", segment_bytes=1 << 20)
    async with Broker(BrokerSettings(store=store, port=0, audit=True)) as broker:
        yield broker


@pytest.fixture
async def reader(audited: Broker) -> AsyncIterator[AdminClient]:
    async with AdminClient(audited.address) as admin:
        yield admin


def resources(entries: list[AuditEntry]) -> list[str]:
    return [one.resource for one in entries]


async def test_the_last_entries_come_oldest_first(reader: AdminClient) -> None:
    for number in range(5):
        await reader.create_topic(f"t{number}", 1)
    assert resources(await reader.audit(3)) == ["topic:t2", "topic:t3", "topic:t4"]
    chosen = await reader.audit(2, chosen=lambda one: one.resource != "topic:t4")
    assert resources(chosen) == ["topic:t2", "topic:t3"]


async def test_entries_before_a_time_are_left_out(reader: AdminClient) -> None:
    await reader.create_topic("t", 1)
    (entry,) = await reader.audit(10)
    assert await reader.audit(10, since_ms=entry.at_ms) == [entry]
    assert await reader.audit(10, since_ms=entry.at_ms + 60_000) == []


async def test_new_entries_follow_the_last_ones_and_none_comes_twice(
    reader: AdminClient, audited: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = AdminClient._ends

    async with AdminClient(audited.address) as other:

        async def ends(self: AdminClient) -> dict[QueueRef, int]:
            """An entry comes as soon as the reader knows where the audit ends."""
            found = await looked(self)
            await other.create_topic(f"between{len(await other.topics())}", 1)
            return found

        await reader.create_topic("old", 1)
        monkeypatch.setattr(AdminClient, "_ends", ends)
        following = reader.follow_audit(1)
        assert (await anext(following)).resource == "topic:old"
        assert (await anext(following)).resource.startswith("topic:between")
        await other.create_topic("new", 1)
        assert (await anext(following)).resource == "topic:new"
        await following.aclose()
        silent = reader.follow_audit(0)
        coming = asyncio.ensure_future(anext(silent))
        assert (await coming).resource.startswith("topic:between")
        await silent.aclose()


async def test_a_message_that_is_no_entry_is_passed_over(
    reader: AdminClient, audited: Broker
) -> None:
    state = audited._state
    assert state is not None
    columns = Columns(["k"], [], [], [b"no entry"], [])
    batch = encode_batch(QueueRef(AUDIT_TOPIC, CHANGES), columns, born_first_ms=1)
    state.store.append(batch, retention="compact")
    await reader.create_topic("t", 1)
    assert resources(await reader.audit(10)) == ["topic:t"]


async def test_a_number_out_of_range_and_a_broker_without_an_audit_are_errors(
    reader: AdminClient, admin: AdminClient
) -> None:
    for count in (0, AUDIT_LISTED_MAX + 1):
        with pytest.raises(ValueError, match="count is 1 to"):
            await reader.audit(count)
    with pytest.raises(ValueError, match="count is 1 to"):
        await anext(reader.follow_audit(AUDIT_LISTED_MAX + 1))
    with pytest.raises(InvalidArgument, match="keeps no audit"):
        await admin.audit(1)
