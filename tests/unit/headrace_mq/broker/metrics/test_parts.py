"""What a broker holds and does as a whole, and what it says of its group."""

import pytest

from headrace_mq.broker.metrics.parts import part_samples, replica_samples
from headrace_mq.broker.replicas.figures import GroupFigures, ReplicaFigures
from headrace_mq.protocol.codes import RequestCode


async def test_a_broker_says_what_it_holds(broker, client, batch, read) -> None:
    await client.create("t", 3)
    await client.produce(batch("t", 0, b"1"))
    found = read(part_samples(broker.state))
    assert (found["topics",], found["queues",], found["connections",]) == (1, 3, 1)
    assert found["clients", "producer"] == 1
    assert found["clients", "consumer"] == 0
    assert found["log_segments", "transient"] == 1
    assert found["log_bytes", "transient"] > 0
    assert (found["takes_messages",], found["read_only",], found["damaged_places_total",]) == (
        1,
        0,
        0,
    )
    assert (found["transactions_open",], found["scheduled_messages",]) == (0, 0)
    assert ("certificate_expires_seconds",) not in found
    assert ("archive_failed",) not in found


async def test_latencies_are_counted(broker, client, batch, read) -> None:
    for _ in range(3):
        await client.produce(batch("t", 0, b"1"))
    found = read(part_samples(broker.state))
    assert found["append_seconds",].total == 3
    assert found["flush_seconds",].total == 3
    assert 0 < found["flush_seconds",].seconds < found["append_seconds",].seconds
    assert found["fetch_seconds",].total == 0


async def test_a_disk_that_refuses_messages_is_seen(broker, read) -> None:
    broker.state.watermarks.refusal = "the disk is full"
    found = read(part_samples(broker.state))
    assert (found["takes_messages",], found["read_only",]) == (0, 0)


async def test_refused_connections_are_counted(start, connect, read) -> None:
    broker = await start(connections_max=1)
    client = await connect(broker)
    assert await (await connect(broker, "")).closed()
    assert read(part_samples(broker.state))["connections_refused_total",] == 1
    await client.ask(RequestCode.DESCRIBE_BROKER)


async def test_refused_logins_and_requests_are_counted(broker, read) -> None:
    class Counts:
        refused = 7

    broker.state.logins = broker.state.guard = Counts()
    found = read(part_samples(broker.state))
    broker.state.logins = broker.state.guard = None
    assert (found["logins_refused_total",], found["requests_forbidden_total",]) == (7, 7)


async def test_open_transactions_have_an_age(start, clock, read, monkeypatch) -> None:
    broker = await start(clock=clock)
    coordinator = type(broker.state.transactions)
    monkeypatch.setattr(coordinator, "undecided", property(lambda _: 2))
    monkeypatch.setattr(coordinator, "oldest_at_ms", property(lambda _: clock.now - 9_000))
    found = read(part_samples(broker.state))
    assert (found["transactions_open",], found["transactions_oldest_seconds",]) == (2, 9)


async def test_a_clock_that_was_set_is_seen(start, clock, read) -> None:
    broker = await start(clock=clock)
    assert read(part_samples(broker.state))["clock_alarm",] == 0
    clock.now += 3_600_000
    found = read(part_samples(broker.state))
    assert (found["clock_alarm",], found["clock_ahead_seconds",]) == (1, 3_600)


async def test_a_certificate_has_an_end(start, tmp_path, authority, read) -> None:
    certificate, key = authority.issue(tmp_path, "localhost")
    broker = await start(tls_certificate=certificate, tls_key=key)
    found = read(part_samples(broker.state))
    assert found["certificate_expires_seconds",] > 1_700_000_000


def test_a_group_of_brokers_has_figures(read) -> None:
    replicas = (
        ReplicaFigures("b:1", in_sync=True, lag_bytes=5, lag_ms=250, loss_bytes=4, loss_ms=200),
    )
    figures = GroupFigures(
        "c", "g1", "a:1", True, "a:1", 7, ("a:1", "b:1"), 2, False, 1_500, replicas, 6,
        repaired=3, unrepaired=2, lost=4, loss_bytes=9, loss_ms=300,
    )  # fmt: skip
    found = read(replica_samples(figures))
    assert found["leads", "c", "g1"] == 1
    assert found["leader_info", "c", "g1", "a:1", "a:1"] == 1
    assert found["group_epoch", "c", "g1"] == 7
    assert (found["in_sync", "c", "g1"], found["min_in_sync", "c", "g1"]) == (2, 2)
    assert found["record_went_back", "c", "g1"] == 0
    assert found["unclean_epoch", "c", "g1"] == 6
    assert found["record_silent_seconds", "c", "g1"] == 1.5
    assert (found["repaired_places_total", "c", "g1"], found["unrepaired_places", "c", "g1"]) == (
        3,
        2,
    )
    assert found["lost_messages", "c", "g1"] == 4
    assert found["replica_in_sync", "c", "g1", "b:1"] == 1
    assert found["replica_lag_bytes", "c", "g1", "b:1"] == 5
    assert found["replica_lag_seconds", "c", "g1", "b:1"] == 0.25
    assert found["replica_loss_bytes", "c", "g1", "b:1"] == 4
    assert found["replica_loss_seconds", "c", "g1", "b:1"] == 0.2
    assert found["failover_loss_bytes", "c", "g1"] == 9
    assert found["failover_loss_seconds", "c", "g1"] == 0.3
    assert found["acknowledges_alone", "c", "g1"] == 0
    follows = read(replica_samples(figures._replace(leads=False, replicas=(), ack="to_in_sync")))
    assert follows["acknowledges_alone", "c", "g1"] == 1
    assert ("failover_loss_bytes", "c", "g1") not in follows


@pytest.mark.parametrize(("ack", "least"), [("in_sync", 2), ("leader", 1), ("to_in_sync", 2)])
def test_a_leader_that_acknowledges_alone_has_never_too_few_in_sync(
    read, ack: str, least: int
) -> None:
    figures = GroupFigures(
        "c", "g1", "a:1", True, "a:1", 7, ("a:1",), 2, False, 0, (), 0, ack=ack
    )  # fmt: skip
    assert read(replica_samples(figures))["min_in_sync", "c", "g1"] == least
