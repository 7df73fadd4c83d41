"""The record in PostgreSQL: what happens where the database does not answer, or went back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from asyncpg import Connection, InternalClientError, connect

from headrace_mq.cluster.member import ClusterMember, Turn
from headrace_mq.cluster.record import (
    ACK_LEADER,
    FEATURE_LEVEL,
    GroupRecord,
    Identity,
    LogPlace,
    OutcomeUnknown,
    Proposal,
    RecordUnavailable,
    Refused,
)
from headrace_mq.cluster.records.postgres import PostgresRecord

A, B = Identity("a", "1"), Identity("b", "2")
HOLD = "LOCK TABLE headrace_cluster_groups"
BACK = "UPDATE headrace_cluster_groups SET version = 1, epoch = 1"
GONE = "DELETE FROM headrace_cluster_groups"
NO_TABLE = "DROP TABLE IF EXISTS headrace_cluster_groups"
# What an earlier version made, with a group in it.
EARLIER = """
    DROP TABLE IF EXISTS headrace_cluster_groups, headrace_cluster_replicas;
    CREATE TABLE headrace_cluster_groups (
        cluster text NOT NULL,
        name text NOT NULL,
        version bigint NOT NULL,
        epoch bigint NOT NULL,
        leader text NOT NULL,
        in_sync_names text[] NOT NULL,
        in_sync_stores text[] NOT NULL,
        CONSTRAINT pk_headrace_cluster_groups PRIMARY KEY (cluster, name)
    );
    INSERT INTO headrace_cluster_groups VALUES ('c', 'g1', 7, 3, 'a', '{a,b}', '{1,2}');
    INSERT INTO headrace_cluster_groups VALUES ('c', 'g2', 7, 3, 'a', '{a,b}', '{1,2}');
"""
# How an earlier version changes and reports.
EARLIER_CHANGE = """
    UPDATE headrace_cluster_groups
    SET version = version + 1, epoch = 1, leader = 'a', in_sync_names = '{a}', in_sync_stores = '{1}', unclean = 0,
        lossy = greatest(lossy, unclean, 0)
"""
EARLIER_REPORT = """
    INSERT INTO headrace_cluster_replicas (cluster, name, replica, store, logs, epochs, ends, reported_at)
    VALUES ('c', 'g1', 'a', '1', '{}', '{}', '{}', clock_timestamp())
    ON CONFLICT ON CONSTRAINT pk_headrace_cluster_replicas
    DO UPDATE SET store = '1', logs = '{}', epochs = '{}', ends = '{}', reported_at = clock_timestamp()
"""
# A user for whom the tables were made by another one.
USER = "headrace_test_of_rights"
MAKE_USER = f"""
    CREATE ROLE {USER};
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    GRANT SELECT, INSERT, UPDATE, DELETE ON headrace_cluster_groups, headrace_cluster_replicas TO {USER};
"""
DROP_USER = f"DROP OWNED BY {USER}; DROP ROLE {USER};"
END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
async def record(postgres_database: str) -> AsyncIterator[PostgresRecord]:
    made = PostgresRecord(postgres_database, cluster="c", group="g1", timeout_ms=20_000)
    await made.create(A, [A, B])
    yield made
    await made.aclose()


async def test_groups_of_one_database_do_not_know_each_other(
    record: PostgresRecord, postgres_database: str
) -> None:
    other = PostgresRecord(
        postgres_database.replace("postgresql:", "postgresql+asyncpg:"), cluster="c", group="g2"
    )
    with pytest.raises(RecordUnavailable, match="no group 'g2'"):
        await other.read()
    await other.create(B, [B])
    assert (await record.read()).leader == "a"
    await other.aclose()
    await other.aclose()


async def test_brokers_that_start_at_once_make_the_table_once(postgres_database: str) -> None:
    hand = await connect(postgres_database)
    members = [Identity(name, "1") for name in "abcdefgh"]
    records = [
        PostgresRecord(postgres_database, cluster="c", group="g1", timeout_ms=20_000)
        for _ in members
    ]
    for _ in range(20):
        await hand.execute(NO_TABLE)
        made = [each.create(own, [own]) for each, own in zip(records, members, strict=True)]
        assert len(set(await asyncio.gather(*made))) == 1
    for record in records:
        await record.aclose()
    await hand.close()


async def test_a_change_that_waits_too_long_has_no_known_outcome_and_blocks_no_later_one(
    record: PostgresRecord, postgres_database: str
) -> None:
    hasty = PostgresRecord(postgres_database, cluster="c", group="g1", timeout_ms=300)
    holder = await connect(postgres_database)
    async with holder.transaction():
        await holder.execute(HOLD)
        with pytest.raises(OutcomeUnknown, match="no other is elected"):
            await hasty.propose(Proposal(1, 2, "b", frozenset({B})))
        with pytest.raises(RecordUnavailable):
            await hasty.read()
    await holder.close()
    assert (await record.read()).version == 1
    assert (await record.propose(Proposal(1, 2, "b", frozenset({B})))).leader == "b"
    await hasty.aclose()


async def test_a_connection_that_was_lost_is_made_again(
    record: PostgresRecord, postgres_database: str
) -> None:
    other = await connect(postgres_database)
    await other.execute(END_OTHERS)
    # The first call may find the connection lost, or closed already.
    with suppress(RecordUnavailable):
        await record.read()
    assert (await record.read()).version == 1
    await other.close()


async def test_a_connection_that_ends_while_it_is_asked_is_no_record(
    record: PostgresRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await record.read()).version == 1

    async def ended(*_of: object, **_more: object) -> None:
        raise InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "fetch", ended)
        with pytest.raises(RecordUnavailable, match="InternalClientError"):
            await record.read()
    assert (await record.read()).version == 1


async def test_no_server_is_no_record(tmp_path: Path) -> None:
    record = PostgresRecord(
        f"postgresql://nobody@/none?host={tmp_path}", cluster="c", group="g1", timeout_ms=500
    )
    with pytest.raises(RecordUnavailable, match="does not answer"):
        await record.read()
    with pytest.raises(RecordUnavailable):
        await record.create(A, [A])
    with pytest.raises(OutcomeUnknown):
        await record.propose(Proposal(1, 2, "b", frozenset({B})))
    await record.aclose()


async def test_a_database_that_went_back_is_noticed_and_its_record_changes_nothing(
    record: PostgresRecord, postgres_database: str
) -> None:
    member = ClusterMember(B, {})
    member.on_record(await record.read())
    proposal = member.stand()
    assert proposal is not None
    assert member.on_record(await record.propose(proposal)) is Turn.LEAD
    # A standby that lacked the last commit took over.
    other = await connect(postgres_database)
    await other.execute(BACK)
    assert member.on_record(await record.read()) is Turn.WENT_BACK
    assert member.stand() is None
    with pytest.raises(Refused):
        await record.propose(Proposal(2, 2, "b", frozenset({B})))
    await other.execute(GONE)
    with pytest.raises(OutcomeUnknown, match="restore it"):
        await record.propose(Proposal(2, 2, "b", frozenset({B})))
    await other.close()


@pytest.mark.parametrize("first", ["read", "propose", "create", "register", "registered", "forget"])
async def test_a_group_of_an_earlier_version_goes_on(postgres_database: str, first: str) -> None:
    hand = await connect(postgres_database)
    await hand.execute(EARLIER)
    await hand.close()
    record = PostgresRecord(postgres_database, cluster="c", group="g1", timeout_ms=20_000)
    calls = {
        "read": record.read,
        "propose": lambda: record.propose(Proposal(7, 4, "a", frozenset({A}), 4)),
        "create": lambda: record.create(A, [A]),
        "register": lambda: record.register(A, [LogPlace("transient", 3, 9)]),
        "registered": record.registered,
        "forget": lambda: record.forget("z"),
    }
    await calls.pop(first)()
    # The table has them now, one for each group.
    given = (await record.read()).group_id
    other = PostgresRecord(postgres_database, cluster="c", group="g2", timeout_ms=20_000)
    assert (await other.read()).group_id not in {"", given}
    await other.aclose()
    if first != "propose":
        assert await record.read() == GroupRecord(7, 3, "a", frozenset({A, B}), 0, 0, given)
        await calls["propose"]()
    assert await record.read() == GroupRecord(8, 4, "a", frozenset({A}), 4, 4, given)
    assert await record.register(B, [LogPlace("transient", 3, 9)]) >= {"b"}
    assert Identity("b", "2") in [one.member for one in await record.registered()]
    await record.aclose()


async def test_a_broker_of_an_earlier_version_changes_nothing_of_what_it_does_not_know(
    record: PostgresRecord, postgres_database: str
) -> None:
    await record.propose(Proposal(1, 1, "a", frozenset({A, B}), ack=ACK_LEADER))
    hand = await connect(postgres_database)
    await hand.execute(EARLIER_CHANGE)
    found = await record.read()
    assert (found.version, found.in_sync, found.ack) == (3, frozenset({A}), ACK_LEADER)
    for known, level in ((FEATURE_LEVEL, FEATURE_LEVEL), (0, 0), (FEATURE_LEVEL, FEATURE_LEVEL)):
        if known:
            await record.register(A, [])
        else:
            await hand.execute(EARLIER_REPORT)
        assert [one.level for one in await record.registered()] == [level]
    await hand.close()


async def test_a_broker_that_may_not_make_tables_uses_those_that_are_there(
    record: PostgresRecord, postgres_database: str
) -> None:
    hand = await connect(postgres_database)
    await hand.execute(MAKE_USER)
    try:
        query = "&" if "?" in postgres_database else "?"
        limited = PostgresRecord(
            f"{postgres_database}{query}role={USER}", cluster="c", group="g1", timeout_ms=20_000
        )
        assert await limited.create(A, [A]) == await record.read()
        assert await limited.register(A, [LogPlace("transient", 1, 9)]) == {"a"}
        await limited.aclose()
    finally:
        await hand.execute(DROP_USER)
        await hand.close()


async def test_a_look_at_a_database_without_groups_makes_no_table(postgres_database: str) -> None:
    hand = await connect(postgres_database)
    await hand.execute(NO_TABLE)
    looks = PostgresRecord(postgres_database, cluster="c", group="g1", timeout_ms=20_000)
    with pytest.raises(RecordUnavailable, match="does not exist"):
        await looks.read()
    assert await hand.fetchval("SELECT to_regclass('headrace_cluster_groups')") is None
    # It goes on once the first broker made them.
    maker = PostgresRecord(postgres_database, cluster="c", group="g1", timeout_ms=20_000)
    made = await maker.create(A, [A])
    assert await looks.read() == made
    for each in (looks, maker):
        await each.aclose()
    await hand.close()
