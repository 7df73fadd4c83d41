"""The group of brokers in the console: who leads, and letting another one lead."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.console.problems import Mistake
from headrace.console.verbs.cluster import ClusterVerbs
from headrace.console.verbs.verb import values_of
from headrace.figures import cluster
from headrace.figures.cluster import RecordPlace
from headrace_mq.cluster.record import Identity, LogPlace, Proposal
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.errors import NotPermitted
from headrace_mq.protocol.limits import LeaderDescription, ReplicaDescription


class Administrator:
    """A connection to a leader that lets another one lead at once."""

    def __init__(self, url: str, *, obeys: bool = True, leads: Any = ()) -> None:
        self._url = url
        self._leads = leads
        self._obeys = obeys

    async def status(self) -> Any:
        return SimpleNamespace(leads=list(self._leads))

    async def hand_over(self, to: str) -> str:
        chosen = to or "h:2"
        if self._obeys:
            record = keeper_of(self._url, cluster="default", group="g1")
            before = await record.read()
            await record.propose(Proposal(before.version, before.epoch + 1, chosen, before.in_sync))
            await record.aclose()
        return chosen


class Stranger:
    async def status(self) -> None:
        raise NotPermitted("user ann may not read the cluster")


@pytest.fixture
async def verbs(postgres_database: str) -> ClusterVerbs:
    record = keeper_of(postgres_database, cluster="default", group="g1")
    await record.create(Identity("h:1", "x"), [Identity("h:1", "x"), Identity("h:2", "y")])
    await record.register(Identity("h:1", "x"), [LogPlace("forever", 1, 70)])
    await record.aclose()
    return ClusterVerbs(RecordPlace(postgres_database))


async def ask(verbs: ClusterVerbs, name: str, admin: Any, **fields: Any) -> Any:
    verb = verbs.verbs[name]
    return await verb.run(admin, values_of(verb, fields))


async def ahead(verbs: ClusterVerbs, admin: Any, **fields: Any) -> Any:
    verb = verbs.verbs["cluster switchover"]
    assert verb.look_ahead is not None
    return await verb.look_ahead(admin, values_of(verb, fields))


async def test_each_broker_of_the_group_is_shown(verbs, postgres_database: str) -> None:
    found = await ask(verbs, "cluster status", Administrator(postgres_database))
    assert (found["leader"], found["group"]) == ("h:1", "g1")
    assert [(one["name"], one["bytes"], one["lacks_bytes"]) for one in found["replicas"]] == [
        ("h:1", 70, 0),
        ("h:2", None, None),
    ]


async def test_what_a_failover_would_lose_is_shown(verbs, postgres_database: str) -> None:
    silent = await ask(verbs, "cluster status", Administrator(postgres_database))
    assert (silent["loss_bytes"], silent["loss_ms"]) == (None, None)
    replicas = [ReplicaDescription("h:2", True, 20, 30, 9, 25)]
    leads = [LeaderDescription("leader", 9, 25, 0, replicas)]
    found = await ask(verbs, "cluster status", Administrator(postgres_database, leads=leads))
    assert (found["loss_bytes"], found["loss_ms"]) == (9, 25)
    assert [one["loss_bytes"] for one in found["replicas"]] == [None, 9]


async def test_a_user_who_may_not_read_the_cluster_sees_no_broker(verbs) -> None:
    with pytest.raises(NotPermitted):
        await ask(verbs, "cluster status", Stranger())


async def test_another_broker_is_let_lead(verbs, postgres_database: str) -> None:
    admin = Administrator(postgres_database)
    told = await ahead(verbs, admin, to="h:2")
    assert told.sentences[0] == "h:1 stops to lead, and h:2 leads in its place."
    assert not told.hindered
    assert "not in sync" in (await ahead(verbs, admin, to="h:9")).hindered
    done = await ask(verbs, "cluster switchover", admin, to="h:2")
    assert done == {"leader": "h:2", "epoch": 2, "before": "h:1"}
    said = verbs.verbs["cluster switchover"].done({}, done)
    assert said == "h:2 leads in epoch 2; before, h:1 did"


async def test_a_broker_that_does_not_take_over_is_a_sentence(
    verbs, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SWITCH_S_MAX", 0.05)
    with pytest.raises(Mistake, match="h:1 still leads: h:2 did not take over"):
        await ask(verbs, "cluster switchover", Administrator(postgres_database, obeys=False))


async def test_a_record_that_does_not_answer_is_a_sentence() -> None:
    lost = ClusterVerbs(RecordPlace("postgresql://u@127.0.0.1:1/d"))
    async with asyncio.timeout(120):
        with pytest.raises(Mistake, match=r"127\.0\.0\.1"):
            await ask(lost, "cluster status", Administrator(""))
