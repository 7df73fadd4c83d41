"""`headrace cluster status` shows the record of a group, and says what to do where there is none."""

import asyncio
import json

from typer.testing import CliRunner, Result

from headrace.cli import _command_line
from headrace_mq.cluster.record import Identity
from headrace_mq.cluster.records.postgres import PostgresRecord


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
