"""`headrace cluster` shows the record of a group, lets another broker lead, and says what to do where there is none."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli import _command_line
from headrace.cli.queue import cluster
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.cluster.record import GroupRecord, Identity, Proposal
from headrace_mq.cluster.records.postgres import PostgresRecord
from headrace_mq.errors import InvalidArgument
from headrace_mq.settings import BrokerSettings, GroupSettings, StoreSettings

# Times that the record is asked before another broker leads.
LOOKS = 3


def status(*arguments: str) -> Result:
    return CliRunner().invoke(_command_line(), ["cluster", "status", *arguments])


async def make(url: str) -> None:
    record = PostgresRecord(url, cluster="default", group="g1")
    await record.create(Identity("h:1", "x"), [Identity("h:1", "x"), Identity("h:2", "y")])
    await record.aclose()


def test_the_leader_and_the_brokers_in_sync_are_shown(postgres_database: str) -> None:
    asyncio.run(make(postgres_database))
    shown = status("--record", postgres_database)
    assert shown.exit_code == 0
    assert [line.split() for line in shown.output.splitlines() if "sync" in line] == [
        ["in", "sync", "h:1", "h:2"]
    ]
    as_json = json.loads(status("--record", postgres_database, "--json").output)
    assert as_json == {"leader": "h:1", "epoch": 1, "version": 1, "in_sync": ["h:1", "h:2"]}


def test_a_group_that_is_not_there_is_named(postgres_database: str) -> None:
    asyncio.run(make(postgres_database))
    refused = status("--record", postgres_database, "--group", "other")
    assert "no group 'other'" in str(refused.exception)
    assert "start the first broker" in str(refused.exception)


def switchover(url: str, broker: str, *arguments: str) -> Result:
    return CliRunner().invoke(
        _command_line(),
        ["cluster", "switchover", "--record", url, "--broker", broker, *arguments],
    )


@pytest.fixture
async def members(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[list[ReplicatedBroker]]:
    made: list[ReplicatedBroker] = []
    for name in "ab":
        settings = BrokerSettings(
            store=StoreSettings(directory=tmp_path / name), port=free_port(),
            group=GroupSettings(record=postgres_database),
        )  # fmt: skip
        made.append(ReplicatedBroker(settings))
        await made[-1].start()
        async with AdminClient(made[0].address) as admin:
            await admin.describe()
    yield made
    for broker in made:
        await broker.aclose()


async def test_the_wait_for_another_leader_asks_over_one_connection(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(postgres_database)
    other = PostgresRecord(postgres_database, cluster="default", group="g1")
    before = await other.read()
    connected: list[PostgresRecord] = []
    asked: list[GroupRecord] = []
    connect, read = PostgresRecord._connect, PostgresRecord.read

    async def counted(self: PostgresRecord, driver: Any) -> Any:
        connected.append(self)
        return await connect(self, driver)

    async def looked(self: PostgresRecord) -> GroupRecord:
        asked.append(await read(self))
        if len(asked) == LOOKS:
            proposal = Proposal(before.version, before.epoch + 1, "h:2", before.in_sync)
            await other.propose(proposal)
        return asked[-1]

    monkeypatch.setattr(PostgresRecord, "_connect", counted)
    monkeypatch.setattr(PostgresRecord, "read", looked)
    after = await cluster._later(before, postgres_database, "default", "g1")
    await other.aclose()
    assert after is not None
    assert (after.leader, after.epoch) == ("h:2", before.epoch + 1)
    assert len(asked) == LOOKS + 1
    assert len(connected) == 1
    assert connected[0]._connection is None


async def test_another_broker_leads_after_a_switchover(
    members: list[ReplicatedBroker], postgres_database: str
) -> None:
    first, second = members
    record = PostgresRecord(postgres_database, cluster="default", group="g1")
    async with asyncio.timeout(30):
        while len((await record.read()).in_sync) < 2:
            await asyncio.sleep(0)
    await record.aclose()
    both = f"{first.address},{second.address}"
    switched = await asyncio.to_thread(switchover, postgres_database, both, "--to", second.address)
    assert switched.exit_code == 0, switched.exception
    assert switched.output.startswith(f"{second.address} leads in epoch ")
    refused = await asyncio.to_thread(switchover, postgres_database, both, "--to", "h:1")
    assert isinstance(refused.exception, InvalidArgument)
