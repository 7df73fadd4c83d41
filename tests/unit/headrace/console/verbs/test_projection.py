"""Projections in the console: what it shows is what the databases say, and what it changes stands in the audit."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from headrace.console.problems import Mistake
from headrace.console.verbs import projection
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.command import CommandAnswer
from headrace.console.verbs.verb import Consequence, values_of
from headrace.errors import ProjectionNotFound
from headrace.settings import Settings
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace_mq import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.errors import NotPermitted
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[AdminClient]:
    """A broker that keeps an audit without a login."""
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    async with (
        Broker(BrokerSettings(store=store, port=0, audit=True)) as broker,
        AdminClient(broker.address) as admin,
    ):
        yield admin


@pytest.fixture
async def urls(admin: AdminClient, tmp_path: Path) -> dict[str, str]:
    """A bank of two accounts and four commands, which runs no more."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    async with app.run(Settings(broker=admin.address, **urls)) as bank:
        for owner in ("ann", "bob"):
            await bank.bus.execute(OpenAccount(account_id=owner, owner=owner), wait_for=[balances])
            paid = Deposit(account_id=owner, transaction_id=owner, amount=70)
            await bank.bus.execute(paid, wait_for=[balances])
    return urls


@pytest.fixture
def verbs(urls: dict[str, str]) -> ApplicationVerbs:
    environment = os.environ | {"HEADRACE_APP": "samples.bank:app"}
    return ApplicationVerbs(app, environment=environment, **urls)


async def run(verbs: ApplicationVerbs, admin: Any, word: str, /, **fields: Any) -> Any:
    verb = verbs.verbs[f"projection {word}"]
    return await verb.run(admin, values_of(verb, fields))


async def ahead(verbs: ApplicationVerbs, admin: Any, word: str, /, **fields: Any) -> Consequence:
    verb = verbs.verbs[f"projection {word}"]
    assert verb.look_ahead is not None
    return await verb.look_ahead(admin, values_of(verb, fields))


async def scalar(url: str, statement: str) -> Any:
    engine = create_engine(url)
    async with engine.connect() as connection:
        found = (await connection.execute(text(statement))).scalar()
    await engine.dispose()
    return found


async def test_projections_are_listed_with_the_figures_of_their_databases(
    verbs, admin, urls
) -> None:
    found = {one["projection"]: one for one in (await run(verbs, admin, "list"))["projections"]}
    assert set(found) == set(app.projections)
    one = found["balances"]
    assert one["rows"] == await scalar(urls["read_models"], "SELECT count(*) FROM balances") == 2
    assert (one["messages"], one["paused"], one["parked"]) == (0, False, 0)
    status = await run(verbs, admin, "status", name="balances")
    ends = {each.queue_id: each.end for each in await admin.ranges(["bank.events"])}
    assert {one["queue"][1]: one["end"] for one in status["lag"]["queues"]} == ends
    offsets = "SELECT sum(next_offset) FROM projection_offsets WHERE name = 'balances'"
    assert sum(one["next_offset"] for one in status["lag"]["queues"]) == await scalar(urls["read_models"], offsets)  # fmt: skip
    with pytest.raises(ProjectionNotFound):
        await run(verbs, admin, "status", name="nothing")


async def test_a_projection_is_paused_and_goes_on_and_the_audit_says_who(
    verbs, admin, urls
) -> None:
    assert "not paused" in (await ahead(verbs, admin, "resume", name="balances")).hindered
    assert (await ahead(verbs, admin, "pause", name="balances")).hindered == ""
    await run(verbs, admin, "pause", name="balances")
    paused = "SELECT paused_at FROM projections WHERE name = 'balances'"
    assert await scalar(urls["read_models"], paused) is not None
    assert (await run(verbs, admin, "status", name="balances"))["projection"]["paused"]
    assert "already" in (await ahead(verbs, admin, "pause", name="balances")).hindered
    await run(verbs, admin, "resume", name="balances")
    assert await scalar(urls["read_models"], paused) is None
    noted = [one for one in await admin.audit(100) if one.action == "note_change"]
    assert [(one.resource, one.detail) for one in noted] == [
        ("group:bank.projection.balances", f"what=projection {word} balances")
        for word in ("pause", "resume")
    ]


async def test_a_rebuild_runs_in_its_own_process_and_can_be_undone_and_dropped(
    verbs, admin, urls
) -> None:
    asked = await ahead(verbs, admin, "rebuild", name="balances")
    messages = sum(one.end for one in await admin.ranges(["bank.events"]))
    assert asked.sentences[0].startswith(f"{messages} messages")
    assert asked.hindered == ""
    assert "no table" in (await ahead(verbs, admin, "rollback", name="balances")).hindered
    verb, told = verbs.verbs["projection rebuild"], []
    assert verb.slow is not None
    answer = await verb.slow(admin, values_of(verb, {"name": "balances"}), told.append)
    assert answer.done
    assert "rows with the live table: 0 differ" in verb.done({}, answer)
    assert any(one.startswith("switch") for one in told), told
    live = "SELECT generation FROM projections WHERE name = 'balances'"
    assert await scalar(urls["read_models"], live) == 2
    assert "Generation 1 goes live again" in (await ahead(verbs, admin, "rollback", name="balances")).sentences[0]  # fmt: skip
    assert await run(verbs, admin, "rollback", name="balances") == {"generation": 1, "behind": 0}
    assert (await ahead(verbs, admin, "drop", name="balances", generation="1")).hindered == "this generation is live"  # fmt: skip
    await run(verbs, admin, "drop", name="balances", generation="2")
    assert "has the generations 1" in (await ahead(verbs, admin, "drop", name="balances", generation="2")).hindered  # fmt: skip


async def test_changes_that_take_long_say_what_they_do_and_need_the_application(
    verbs, admin, urls
) -> None:
    for word in ("verify", "switch"):
        assert "2" in (await ahead(verbs, admin, word, name="balances")).sentences[0]
    kept = await ahead(verbs, admin, "rebuild", name="balances", switch="off", **{"from": "store"})
    assert "kept next to them" in kept.sentences[-1]
    assert "however many" in (await ahead(verbs, admin, "rebuild", name="balances", accept_differences="1")).sentences[-1]  # fmt: skip
    nameless = ApplicationVerbs(app, **urls)
    with pytest.raises(Mistake, match="name --app"):
        await run(nameless, admin, "verify", name="balances")


class Refusing:
    """A connection of a user who may read the cluster, and change nothing."""

    async def status(self) -> None:
        """Lets it through."""

    async def note_change(self, what: str, *, group: str) -> None:
        raise NotPermitted(f"user 'ann' may not update group:{group}")


async def test_a_user_who_may_not_update_the_group_changes_no_projection(verbs, urls) -> None:
    for word in ("pause", "resume", "verify", "rebuild", "switch", "rollback"):
        with pytest.raises(NotPermitted, match=r"update group:bank\.projection\.balances"):
            await run(verbs, Refusing(), word, name="balances")
    with pytest.raises(NotPermitted):
        await run(verbs, Refusing(), "drop", name="balances", generation="1")
    assert await scalar(urls["read_models"], "SELECT count(*) FROM projections WHERE paused_at IS NOT NULL") == 0  # fmt: skip


class Unreading:
    """A connection of a user who may change groups, and may not read the cluster."""

    async def status(self) -> None:
        raise NotPermitted("user 'cara' may not read cluster")

    async def note_change(self, what: str, *, group: str) -> None:
        raise AssertionError(f"{what} was noted")


async def test_a_user_who_may_not_read_the_cluster_changes_no_projection(verbs) -> None:
    for word in ("pause", "resume", "verify", "rebuild", "switch", "rollback", "drop"):
        more = {"generation": "1"} if word == "drop" else {}
        with pytest.raises(NotPermitted, match="may not read cluster"):
            await run(verbs, Unreading(), word, name="balances", **more)
        with pytest.raises(NotPermitted, match="may not read cluster"):
            await ahead(verbs, Unreading(), word, name="balances", **more)


async def test_a_report_of_differences_has_no_values_of_rows(verbs, admin, monkeypatch) -> None:
    said = "2 differ\n  1 differ in owner\n    ann: live 'a secret name', rebuilt 'ann'\n  1 have no row"

    async def run_command(*_: Any, keeps: Any, need: str) -> CommandAnswer:
        assert need == ""
        return CommandAnswer(done=False, lines=tuple(filter(keeps, said.splitlines())))

    monkeypatch.setattr(projection, "run_command", run_command)
    for word in ("verify", "rebuild"):
        answer = await run(verbs, admin, word, name="balances")
        assert answer.lines == ("2 differ", "  1 differ in owner", "  1 have no row")


async def test_pages_of_projections_ask_before_a_change_and_do_it(
    verbs, admin, urls, console
) -> None:
    browser = await console(admin.address, verbs.verbs)
    assert 'href="/projection?name=balances"' in await browser.page("/projections")
    page = await browser.page("/projection", name="balances")
    assert "/do/projection/rebuild" in page
    asked = await browser.send(
        "projection pause", name="balances", back="/projection?name=balances"
    )
    assert "its lag grows" in asked.text
    done = await browser.send("projection pause", name="balances", confirmed="1")
    assert "projection balances is paused" in done.text
    assert 'class="tag warn">paused' in await browser.page("/projections")
    token = await browser.token()
    said = await browser.client.post(
        "/api/projection/resume",
        json={"name": "balances", "dry_run": True},
        headers={"X-Headrace-Token": token},
    )
    assert "catches up" in said.text
    assert 'class="tag warn">paused' in await browser.page("/projections")


async def test_a_rebuild_with_spark_names_its_engine_to_the_command(
    verbs, admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await ahead(verbs, admin, "rebuild", name="balances", engine="spark")
    assert "Spark starts in some seconds" in told.sentences[1]
    given: list[list[str]] = []

    async def command(words: list[str], *_: Any, **__: Any) -> str:
        given.append(words)
        return "done"

    monkeypatch.setattr("headrace.console.verbs.projection.run_command", command)
    await run(verbs, admin, "rebuild", name="balances", engine="spark")
    assert given[0][:5] == ["projection", "rebuild", "balances", "--engine", "spark"]
    with pytest.raises(Mistake, match="engine is one of replay, spark"):
        await run(verbs, admin, "rebuild", name="balances", engine="pandas")


async def test_a_page_makes_no_tables(verbs, admin, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    await upgrade(url)
    empty = ApplicationVerbs(app, event_store=url, read_models=url)
    found = await run(empty, admin, "list")
    assert (found["projections"], found["without_tables"]) == ([], sorted(app.projections))
    for ask in (
        run(empty, admin, "status", name="balances"),
        ahead(empty, admin, "pause", name="balances"),
        ahead(empty, admin, "verify", name="balances"),
        ahead(empty, admin, "rebuild", name="balances"),
    ):
        with pytest.raises(ProjectionNotFound, match="has no tables yet"):
            await ask
    assert await scalar(url, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'balances%'") == 0
