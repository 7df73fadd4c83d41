"""A rebuild whose messages come from a replica equals the live rows, and a failover in the middle changes nothing."""

import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.rebuild import rebuild
from tests.integration.mq.broker_group import Group, Member, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SERVES = "this replica serves reads"
# On a busy machine a replica is at times too late to serve, and the leader does; the rows are right.
REBUILDS_MAX = 6


@pytest.fixture
async def broker(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[Group]:
    """Two brokers of a group, in sync."""
    members = [
        Member(tmp_path / name, f"127.0.0.1:{free_port()}", postgres_database) for name in "ab"
    ]
    async with running(Group(members, postgres_database)) as made:
        yield made


async def test_a_rebuild_from_a_replica_equals_live(
    rows_of: Any, spark: Any, broker: Group, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, sqlite_url: str,
) -> None:  # fmt: skip
    history = make_history(40, 12)
    await publish(history)
    await catch_up_live(sqlite_url, ledger.accounts)
    live = await rows_of(sqlite_url, ledger.accounts)
    leader = await broker.leader()
    (replica,) = [one for one in broker.members if one is not leader]
    for _ in range(REBUILDS_MAX):
        await broker.in_sync()
        report = await rebuild(
            "ledger_app:app", "accounts", broker=f"tcp://{broker.address}?read_from=replica",
            read_models_url=sqlite_url, spark=spark,
        )  # fmt: skip
        assert (report.switched, report.reason, report.mismatches) == (True, "", 0)
        assert sum(report.end_offsets.values()) == len(history)
        assert await rows_of(sqlite_url, ledger.accounts) == live
        if SERVES in replica.log():
            break
    assert SERVES in replica.log()
    assert SERVES not in leader.log()


@pytest.mark.parametrize("read_from", ["leader", "replica"])
async def test_a_rebuild_goes_on_when_the_leader_is_killed(
    rows_of: Any, spark: Any, broker: Group, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, sqlite_url: str, read_from: str,
) -> None:  # fmt: skip
    history = make_history(40, 12)
    await publish(history)
    await catch_up_live(sqlite_url, ledger.accounts)
    live = await rows_of(sqlite_url, ledger.accounts)
    leader = await broker.leader()

    def report_of(phase: str, _ahead: int) -> None:
        if phase == "fold":
            leader.take(signal.SIGKILL)

    report = await rebuild(
        "ledger_app:app", "accounts", broker=f"tcp://{broker.address}?read_from={read_from}",
        read_models_url=sqlite_url, spark=spark, report=report_of,
    )  # fmt: skip
    assert (report.switched, report.reason, report.mismatches) == (True, "", 0)
    assert sum(report.end_offsets.values()) == len(history)
    assert await rows_of(sqlite_url, ledger.accounts) == live
    assert await broker.leader() is not leader
