"""A group of brokers is read from its record."""

from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.figures.cluster import RecordPlace, group_shown, later, look
from headrace_mq.cluster.record import GroupRecord, Identity, LogPlace, Proposal
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.cluster.records.postgres import PostgresRecord

# Times that the record is asked before another broker leads.
LOOKS = 3


async def make(url: str) -> None:
    record = keeper_of(url, cluster="default", group="g1")
    await record.create(Identity("h:1", "x"), [Identity("h:1", "x"), Identity("h:2", "y")])
    await record.register(Identity("h:1", "x"), [LogPlace("forever", 3, 5_000)])
    await record.aclose()


async def test_a_group_is_shown_with_what_its_brokers_reported(postgres_database: str) -> None:
    await make(postgres_database)
    shown = group_shown(*await look(RecordPlace(postgres_database)))
    assert (shown["leader"], shown["in_sync"]) == ("h:1", ["h:1", "h:2"])
    (one,) = shown["replicas"]
    assert (one["name"], one["in_sync"], one["epoch"], one["bytes"]) == ("h:1", True, 3, 5_000)


async def test_a_group_that_is_not_there_is_a_sentence(postgres_database: str) -> None:
    await make(postgres_database)
    with pytest.raises(HeadraceError, match="g9"):
        await look(RecordPlace(postgres_database, group="g9"))


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
    after = await later(before, RecordPlace(postgres_database))
    await other.aclose()
    assert after is not None
    assert (after.leader, after.epoch) == ("h:2", before.epoch + 1)
    assert len(asked) == LOOKS + 1
    assert len(connected) == 1
    assert connected[0]._connection is None
