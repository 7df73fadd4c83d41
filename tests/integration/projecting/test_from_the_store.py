"""A service at work, a broker that is lost, and read models made of the event store meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace import Settings
from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.check import check
from headrace.rebuild.local.rebuild import rebuild_together
from headrace.stores.database.schema import upgrade
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount, Withdraw
from samples.bank.read_models import balances, daily_totals, statement

APP = "samples.bank:app"
PROJECTIONS = [balances, statement, daily_totals]
NAMES = [each.name for each in PROJECTIONS]
ACCOUNTS = [f"account-{number}" for number in range(8)]


@pytest.fixture
async def urls(database_url: str, tmp_path: Path) -> dict[str, str]:
    """Of the event store and the read models: two files, or one PostgreSQL database."""
    store = f"sqlite:///{tmp_path / 'events.db'}" if "sqlite" in database_url else database_url
    for url in (database_url, store):
        await upgrade(url)
    return {"event_store_url": store, "read_models_url": database_url}


@pytest.fixture
async def new_broker(tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    """Starts brokers, each with a directory of its own; the one before is gone with all it had."""
    async with AsyncExitStack() as stack:
        started: list[Broker] = []

        async def start() -> Broker:
            for broker in started:
                await broker.aclose()
            directory = tmp_path / f"broker-{len(started)}"
            store = StoreSettings(directory=directory, flush="interval", segment_bytes=1 << 22)
            started.append(Broker(BrokerSettings(store=store, port=0)))
            await started[-1].start()
            return started[-1]

        yield start
        await stack.aclose()
        await started[-1].aclose()


def settings(broker: Broker, urls: dict[str, str]) -> Settings:
    return Settings(
        broker=broker.address,
        event_store=urls["event_store_url"],
        read_models=urls["read_models_url"],
    )


async def open_accounts(running: Any) -> None:
    await asyncio.gather(
        *(
            running.bus.execute(OpenAccount(account_id=each, owner=each), wait_for=PROJECTIONS)
            for each in ACCOUNTS
        )
    )


async def move(running: Any, number: int, **choices: Any) -> None:
    """One of the commands of the traffic; every seventh is refused."""
    account, name = ACCOUNTS[number * 5 % len(ACCOUNTS)], f"t-{number}"
    if number % 7:
        deposit = Deposit(account_id=account, transaction_id=name, amount=number)
        await running.bus.execute(deposit, **choices)
    else:
        too_much = Withdraw(account_id=account, transaction_id=name, amount=10**9)
        assert not (await running.bus.execute(too_much)).ok


async def assert_rows_are_the_fold(running: Any, urls: dict[str, str]) -> None:
    """Nothing is under way any more: every row is what the whole store makes."""
    streams = [each.stream for each in await running.store.read_all(limit=100_000)]
    streams = [each for each in streams if each.version is not None]
    for projection in PROJECTIONS:
        made = fold_streams(projection, {}, streams)
        reader = running.read(projection)
        found = {getattr(row, projection.key): row async for row in reader.rows()}
        assert found == {key: row for key, row in made.items() if row is not None}


async def settle(running: Any, number: int) -> None:
    """Waits until every account's last event is in every read model."""
    for place, account in enumerate(ACCOUNTS):
        deposit = Deposit(account_id=account, transaction_id=f"end-{number}-{place}", amount=1)
        await running.bus.execute(deposit, wait_for=PROJECTIONS)


@pytest.mark.slow
async def test_rebuilds_and_verifications_are_correct_while_commands_come_in(
    new_broker: Any, urls: dict[str, str]
) -> None:
    broker = await new_broker()
    async with app.run(settings(broker, urls)) as running:
        await open_accounts(running)
        number, stop = 0, asyncio.Event()

        async def traffic() -> None:
            nonlocal number
            while not stop.is_set():
                number += 1
                await move(running, number)

        clients = [asyncio.create_task(traffic()) for _ in range(4)]
        try:
            for _ in range(2):
                before = number
                outcomes = await rebuild_together(
                    APP, NAMES, broker=broker.address, source="store", messages_max=50, **urls
                )
                assert number > before
                for report in outcomes.values():
                    assert not isinstance(report, Exception), report
                    assert (report.switched, report.mismatches, report.ahead) == (True, 0, 0)
                checked = await check(APP, NAMES, broker=None, **urls)
                for found in checked.values():
                    assert not isinstance(found, Exception), found
                    assert found.proven, found.to_json()
                    assert found.compared
        finally:
            stop.set()
            await asyncio.gather(*clients)
        await settle(running, 0)
        await assert_rows_are_the_fold(running, urls)


@pytest.mark.slow
async def test_rows_are_rebuilt_from_the_store_after_a_broker_is_lost(
    new_broker: Any, urls: dict[str, str]
) -> None:
    async with app.run(settings(await new_broker(), urls)) as running:
        await open_accounts(running)
        for number in range(1, 40):
            await move(running, number)
        await settle(running, 0)
    broker = await new_broker()
    # The new one has no topic, and then a short one.
    with_topic = {"broker": broker.address, "verify": False, **urls}
    told = (await rebuild_together(APP, ["balances"], **with_topic))["balances"]
    assert isinstance(told, ProjectionError)
    assert "--from store" in str(told)
    assert (await check(APP, ["balances"], broker=None, **urls))["balances"].proven
    async with app.run(settings(broker, urls)) as running:
        for number in range(40, 60):
            await move(running, number)
        outcomes = await rebuild_together(
            APP, NAMES, broker=broker.address, source="store", live_wait_ms=0, **urls
        )
        for report in outcomes.values():
            assert not isinstance(report, Exception), report
            assert (report.switched, report.mismatches, report.ahead) == (True, 0, 0)
        await settle(running, 1)
        await assert_rows_are_the_fold(running, urls)
    models = ReadModels(urls["read_models_url"])
    for name in NAMES:
        offsets = await models.offsets(name, await models.generation(name))
        assert all(topic == "bank.events" for topic, _ in offsets)
    await models.aclose()
