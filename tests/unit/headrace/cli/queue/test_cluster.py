"""`headrace cluster` shows the record of a group, lets another broker lead, and says what to do where there is none."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from asyncpg import connect
from typer.testing import CliRunner, Result

from headrace.cli import _command_line
from headrace.cli.queue import cluster as subject
from headrace.errors import HeadraceError
from headrace.figures import cluster
from headrace_mq._runtime.clock import SystemClock
from headrace_mq.admin import name_servers
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.cluster.record import GroupRecord, Identity, LogPlace, Proposal, Refused
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.cluster.records.postgres import PostgresRecord
from headrace_mq.errors import ConnectionLost, InvalidArgument, MessageQueueError
from headrace_mq.protocol.names.routes import BrokerRoute, RoutesAnswer
from headrace_mq.settings import BrokerSettings, GroupSettings, StoreSettings

A_MINUTE_AGO = (
    "UPDATE headrace_cluster_replicas SET reported_at = clock_timestamp() - interval '1 minute'"
    " WHERE replica = $1"
)


def status(*arguments: str) -> Result:
    return CliRunner().invoke(_command_line(), ["cluster", "status", *arguments])


async def make(url: str) -> None:
    record = keeper_of(url, cluster="default", group="g1")
    await record.create(Identity("h:1", "x"), [Identity("h:1", "x"), Identity("h:2", "y")])
    await record.aclose()


@pytest.mark.parametrize("kept_in", ["postgres_database", "etcd_url"])
def test_the_leader_and_the_brokers_in_sync_are_shown(
    request: pytest.FixtureRequest, kept_in: str
) -> None:
    url = request.getfixturevalue(kept_in)
    asyncio.run(make(url))
    shown = status("--record", url)
    assert shown.exit_code == 0
    assert [
        line.split() for line in shown.output.splitlines() if "h:" in line and "sync" in line
    ] == [["in", "sync", "h:1", "h:2"]]
    as_json = json.loads(status("--record", url, "--json").output)
    assert len(as_json.pop("group_id")) == 36
    assert as_json == {
        "leader": "h:1", "epoch": 1, "version": 1, "in_sync": ["h:1", "h:2"], "unclean": 0, "lossy": 0,
        "ack": "in_sync", "replicas": [],
    }  # fmt: skip


async def report(url: str, name: str, store: str, *places: LogPlace, silent: bool = False) -> None:
    """Lets a broker report now, or a minute ago."""
    record = PostgresRecord(url, cluster="default", group="g1")
    await record.register(Identity(name, store), places)
    await record.aclose()
    if silent:
        await be_silent(url, name)


async def be_silent(url: str, name: str) -> None:
    hand = await connect(url)
    await hand.execute(A_MINUTE_AGO, name)
    await hand.close()


def test_brokers_are_shown_with_what_they_reported(postgres_database: str) -> None:
    asyncio.run(make(postgres_database))
    asyncio.run(report(postgres_database, "h:1", "x", LogPlace("forever", 3, 5_000)))
    asyncio.run(report(postgres_database, "h:3", "z", LogPlace("forever", 2, 70), silent=True))
    shown = status("--record", postgres_database).output.splitlines()
    rows = [line.split() for line in shown if line.startswith(" h:")]
    # How long ago depends on the speed of the machine.
    first_s, third_s = int(rows[0].pop(2)), int(rows[2].pop(2))
    assert first_s < 60 <= third_s
    assert rows == [
        ["h:1", "yes", "s", "ago", "3", "5,000", "0"],
        ["h:2", "yes", "-", "-", "-", "-"],
        ["h:3", "no", "s", "ago", "2", "70", "4,930"],
    ]
    first, second = json.loads(status("--record", postgres_database, "--json").output)["replicas"]
    assert (first["name"], first["in_sync"], first["epoch"], first["bytes"]) == (
        "h:1", True, 3, 5_000,
    )  # fmt: skip
    assert second["reported_ms"] >= 60_000
    assert (first["lacks_bytes"], second["lacks_bytes"]) == (0, 4_930)


def remove(url: str, name: str) -> Result:
    return CliRunner().invoke(_command_line(), ["cluster", "remove", name, "--record", url])


def test_a_broker_that_will_not_come_back_is_removed(postgres_database: str) -> None:
    asyncio.run(make(postgres_database))
    asyncio.run(report(postgres_database, "h:1", "x"))
    asyncio.run(report(postgres_database, "h:2", "y"))
    for name, sentence in (
        ("h:1", "leads the group"), ("h:2", "h:2 still runs"), ("h:9", "no broker h:9"),
    ):  # fmt: skip
        refused = remove(postgres_database, name)
        assert isinstance(refused.exception, HeadraceError)
        assert sentence in str(refused.exception)
    asyncio.run(be_silent(postgres_database, "h:2"))
    removed = remove(postgres_database, "h:2")
    assert removed.output == "h:2 is no broker of the group any more; in sync: h:1\n"
    assert "h:2" not in status("--record", postgres_database).output
    assert "no broker h:2" in str(remove(postgres_database, "h:2").exception)


def promote(url: str, name: str, *arguments: str) -> Result:
    return CliRunner().invoke(
        _command_line(), ["cluster", "promote", name, "--record", url, *arguments]
    )


def settle(url: str) -> Result:
    return CliRunner().invoke(_command_line(), ["cluster", "settle", "--record", url])


def test_a_promotion_says_what_is_lost_and_changes_nothing_until_that_is_accepted(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(make(postgres_database))
    asyncio.run(report(postgres_database, "h:1", "x", LogPlace("forever", 3, 5_000), silent=True))
    assert "h:3 has never reported" in str(promote(postgres_database, "h:3").exception)
    asyncio.run(report(postgres_database, "h:3", "z", LogPlace("forever", 2, 70)))
    before = status("--record", postgres_database, "--json").output
    looked = promote(postgres_database, "h:3")
    assert isinstance(looked.exception, HeadraceError)
    assert "nothing was changed. Start a broker that is in sync" in str(looked.exception)
    assert [line.split()[0] for line in looked.output.splitlines() if "4,930 or more" in line] == [
        "h:1"
    ]
    assert "not known: it has not reported" in looked.output
    after = status("--record", postgres_database, "--json").output
    assert json.loads(before)["version"] == json.loads(after)["version"]
    # There is no broker here that would lead.
    monkeypatch.setattr(cluster, "SWITCH_S_MAX", 0.05)
    asyncio.run(report(postgres_database, "h:3", "z", LogPlace("forever", 2, 70)))
    done = promote(postgres_database, "h:3", "--accept-loss")
    assert "h:3 is to lead from epoch 2 on, and does not yet" in str(done.exception)
    shown = json.loads(status("--record", postgres_database, "--json").output)
    assert (shown["leader"], shown["in_sync"], shown["unclean"]) == ("h:3", ["h:3"], 2)
    assert "promoted with loss" in status("--record", postgres_database).output
    assert settle(postgres_database).output.startswith("settled: a broker was promoted")
    assert settle(postgres_database).output.startswith("nothing to settle")
    assert json.loads(status("--record", postgres_database, "--json").output)["unclean"] == 0


def test_a_change_that_always_comes_too_late_ends(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(make(postgres_database))
    asyncio.run(report(postgres_database, "h:1", "x"))

    async def refused(self: PostgresRecord, *_: object) -> None:
        raise Refused(await self.read())

    monkeypatch.setattr(PostgresRecord, "propose", refused)
    assert "changes all the time" in str(remove(postgres_database, "h:2").exception)
    asyncio.run(report(postgres_database, "h:2", "y"))
    assert "changes all the time" in str(ack(postgres_database, "leader", "--yes").exception)
    for name in ("h:1", "h:2"):
        asyncio.run(be_silent(postgres_database, name))
    asyncio.run(report(postgres_database, "h:3", "z"))
    late = promote(postgres_database, "h:3", "--accept-loss").exception
    assert "look at it again" in str(late)

    async def marked(_self: PostgresRecord) -> GroupRecord:
        return GroupRecord(1, 2, "h:1", frozenset(), 2)

    monkeypatch.setattr(PostgresRecord, "read", marked)
    assert "changes all the time" in str(settle(postgres_database).exception)


def ack(url: str, who: str, *arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(
        _command_line(), ["cluster", "ack", who, "--record", url, *arguments], input=answer
    )


def test_an_operator_sees_the_price_before_a_leader_acknowledges_alone(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "ACK_S_MAX", 0.05)
    asyncio.run(make(postgres_database))

    def acknowledges() -> str:
        return json.loads(status("--record", postgres_database, "--json").output)["ack"]  # type: ignore[no-any-return]  # a string

    early = ack(postgres_database, "leader", "--yes").exception
    assert isinstance(early, HeadraceError)
    assert "not known that they are of this version: h:1 h:2" in str(early)
    for name, store in (("h:1", "x"), ("h:2", "y")):
        asyncio.run(report(postgres_database, name, store))
    assert "nothing to change" in ack(postgres_database, "in-sync").output
    refused = ack(postgres_database, "leader", answer="n\n")
    assert (refused.exit_code, acknowledges()) == (1, "in_sync")
    assert "What that one does not have yet is lost" in refused.output
    assert ack(postgres_database, "leader", answer="y\n").exit_code == 0
    assert acknowledges() == "leader"
    assert "the leader alone" in status("--record", postgres_database).output
    assert "nothing to change" in ack(postgres_database, "leader").output
    # There is no leader here that would end the way back.
    late = ack(postgres_database, "in-sync")
    assert "a failover may still lose messages" in str(late.exception)
    assert acknowledges() == "to_in_sync"
    asyncio.run(end_way_back(postgres_database))
    assert "nothing to change" in ack(postgres_database, "in-sync").output


@pytest.mark.parametrize(("epoch", "is_warned"), [(1, False), (2, True)])
def test_an_operator_hears_of_a_leader_that_was_elected_on_the_way_back(
    monkeypatch: pytest.MonkeyPatch, epoch: int, is_warned: bool
) -> None:
    async def changed(*_: object) -> tuple[bool, GroupRecord]:
        return True, GroupRecord(3, 1, "h:1", frozenset(), ack="to_in_sync")

    async def ended(_: object) -> int:
        return epoch

    monkeypatch.setattr(subject, "_change_ack", changed)
    monkeypatch.setattr(subject, "_all_acknowledge", ended)
    shown = ack("postgresql://h/d", "in-sync")
    assert shown.exit_code == 0
    assert "done: all brokers in sync have everything" in shown.output
    assert ("another broker was elected meanwhile, in epoch 2" in shown.output) == is_warned


async def end_way_back(url: str) -> None:
    """As the leader does."""
    record = keeper_of(url, cluster="default", group="g1")
    found = await record.read()
    await record.propose(
        Proposal(found.version, found.epoch, found.leader, found.in_sync, ack="in_sync")
    )
    await record.aclose()


@pytest.mark.parametrize(
    ("url", "told"), [("redis://h:1", "PostgreSQL or etcd"), ("etcd://h", "'h' is no HOST:PORT")]
)
def test_a_record_that_no_keeper_has_says_what_to_write(url: str, told: str) -> None:
    refused = status("--record", url)
    assert isinstance(refused.exception, MessageQueueError)
    assert told in str(refused.exception)


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
        async with AdminClient(made[0].address, timeout_ms=60_000) as admin:
            await admin.describe()
    yield made
    for broker in made:
        await broker.aclose()


async def test_another_broker_leads_after_a_switchover(
    members: list[ReplicatedBroker], postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = members
    record = keeper_of(postgres_database, cluster="default", group="g1", timeout_ms=30_000)
    async with asyncio.timeout(120):
        while len((await record.read()).in_sync) < 2:
            await asyncio.sleep(0)
    await record.aclose()
    both = f"{first.address},{second.address}"
    with monkeypatch.context() as patch:  # on a busy machine
        patch.setattr(f"{ReplicatedBroker.__module__}.HAND_OVER_MS_MAX", 60_000)
        patch.setattr(cluster, "SWITCH_S_MAX", 60)
        switched = await asyncio.to_thread(
            switchover, postgres_database, both, "--to", second.address
        )
    assert switched.exit_code == 0, switched.exception
    assert switched.output.startswith(f"{second.address} leads in epoch ")
    refused = await asyncio.to_thread(switchover, postgres_database, both, "--to", "h:1")
    assert isinstance(refused.exception, InvalidArgument)


async def test_a_leader_does_not_count_a_broker_that_was_removed(
    members: list[ReplicatedBroker], postgres_database: str
) -> None:
    first, second = members
    async with asyncio.timeout(120):
        while [one.in_sync for one in first.figures().replicas] != [True]:
            await asyncio.sleep(0)
        while len(json.loads((await shown(postgres_database)).output)["replicas"]) < 2:
            await asyncio.sleep(0)
        await second.aclose()
        await be_silent(postgres_database, second.address)
        removed = await asyncio.to_thread(remove, postgres_database, second.address)
        assert removed.exit_code == 0, removed.exception
        # As soon as its own silence is long enough, too.
        term = first._term
        assert term is not None
        first._clock = term._clock = Later()
        first._reports._due_ms = 0
        while first.figures().replicas:
            await asyncio.sleep(0)
    async with AdminClient(first.address) as admin:
        assert (await admin.describe()).broker == first.address


class Later(SystemClock):
    """A clock that is a minute ahead."""

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + 60_000


async def shown(url: str) -> Result:
    return await asyncio.to_thread(status, "--record", url, "--json")


def test_the_brokers_that_each_name_server_knows_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = BrokerRoute("default", "g1", "a:1", "leader", 4, ["a:1"], 1_024, 250)
    known: dict[str, Any] = {"x:1": RoutesAnswer(True, [leader]), "y:1": RoutesAnswer(False, [])}

    async def ask(servers: str, asked: str) -> dict[str, Any]:
        assert (servers, asked) == ("x:1,y:1", "default")
        return known

    monkeypatch.setattr(name_servers, "ask_name_servers", ask)
    arguments = ["cluster", "brokers", "--nameservers", "x:1,y:1", "--cluster", "default"]
    shown = CliRunner().invoke(_command_line(), arguments)
    assert shown.exit_code == 0, shown.output
    assert "x:1: 1 broker\n" in shown.output
    assert "y:1: 0 brokers, and it is not ready yet\n" in shown.output
    row = "default g1 a:1 leader 4 1,024 0.2 s ago a:1"
    assert row in [" ".join(line.split()) for line in shown.output.splitlines()]
    known["y:1"] = ConnectionLost("away")
    shown = CliRunner().invoke(_command_line(), arguments)
    assert shown.exit_code == 2
    assert "y:1: no answer, away" in shown.output
    as_json = CliRunner().invoke(_command_line(), [*arguments, "--json"])
    assert json.loads(as_json.output)["y:1"] == {"error": "away"}
    assert json.loads(as_json.output)["x:1"]["brokers"][0]["role"] == "leader"


def test_a_wrong_address_of_name_servers_is_refused() -> None:
    done = CliRunner().invoke(_command_line(), ["cluster", "brokers", "--nameservers", "nowhere"])
    assert done.exit_code == 2
    assert "looks like" in done.output


async def test_none_is_promoted_while_a_broker_in_sync_listens(postgres_database: str) -> None:
    """It may reach clients, but not the record, and go on to acknowledge their messages."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1")
    name = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    record = keeper_of(postgres_database, cluster="default", group="g1")
    before = await record.create(Identity(name, "x"), [Identity(name, "x")])
    await report(postgres_database, "h:3", "z")
    refused = await asyncio.to_thread(promote, postgres_database, "h:3", "--accept-loss")
    assert f"{name} is in sync and does not reach the record, but it listens" in str(
        refused.exception
    )
    assert await record.read() == before
    # One that came back with an empty disk is not in sync, though it has the name.
    await report(postgres_database, name, "an empty disk")
    await report(postgres_database, "h:3", "z")
    refused = await asyncio.to_thread(promote, postgres_database, "h:3")
    assert "make sure that none in sync runs any more" in str(refused.exception)
    server.close()
    await record.aclose()
