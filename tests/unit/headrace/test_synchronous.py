"""Commands and rows for programs without an event loop, over a real broker."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace import Settings
from headrace.errors import BrokerUnreachable, CommandTimeout, HeadraceError
from headrace.synchronous import SynchronousBus
from headrace_mq import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances

ROOT = Path(__file__).parents[3]
SEGMENT_BYTES = 1 << 20


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[str]:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=SEGMENT_BYTES)
    broker = Broker(BrokerSettings(port=0, store=store))
    await broker.start()
    yield broker.address
    await broker.aclose()


@pytest.fixture
async def settings(tmp_path: Path, broker: str) -> AsyncIterator[Settings]:
    """Where a bank is at work, in this test's event loop."""
    settings = Settings(
        broker=broker,
        event_store=f"sqlite:///{tmp_path}/events.db",
        read_models=f"sqlite:///{tmp_path}/read.db",
    )
    async with app.run(settings):
        yield settings


def use(settings: Settings) -> None:
    with SynchronousBus(app, settings) as bus:
        accounts = bus.read(balances)
        for owner in ("ann", "bob"):
            opened = bus.execute(OpenAccount(account_id=owner, owner=owner), command_id=owner)
            assert (opened.status, opened.version) == ("executed", 1)
        paid = Deposit(account_id="ann", transaction_id="t", amount=5)
        assert bus.send(paid, command_id="paid") == "paid"
        assert bus.execute(paid, command_id="paid", wait_for=[balances]).value == {"balance": 5}
        bob = accounts.get("bob")
        assert bob is not None
        assert bob.balance == 0
        assert accounts.get("cid") is None
        assert [row.account_id for row in accounts.where(balance__ge=5)] == ["ann"]
        assert [row.account_id for row in accounts.page(order_by="-balance").rows] == ["ann", "bob"]
        assert accounts.count() == 2
    with pytest.raises(HeadraceError, match="closed"):
        accounts.count()


async def test_commands_and_rows_need_no_event_loop_of_the_caller(settings: Settings) -> None:
    await asyncio.to_thread(use, settings)


def use_from_threads(settings: Settings) -> None:
    bus = SynchronousBus(app, settings)
    bus.execute(OpenAccount(account_id="ann", owner="Ann"))

    def pay(number: int) -> str:
        paid = Deposit(account_id="ann", transaction_id=f"t{number}", amount=1)
        return bus.execute(paid, command_id=f"c{number}").status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(pay, range(40))) == {"executed"}
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("headrace bus") == 1
    last = Deposit(account_id="ann", transaction_id="last", amount=1)
    assert bus.execute(last).value == {"balance": 41}
    bus.close()
    bus.close()
    assert "headrace bus" not in [thread.name for thread in threading.enumerate()]


async def test_all_threads_share_one_connection(settings: Settings) -> None:
    await asyncio.to_thread(use_from_threads, settings)


async def test_a_call_under_way_ends_when_the_bus_is_closed(broker: str) -> None:
    # Without a service nothing answers.
    bus = SynchronousBus(app, Settings(broker=broker))
    calling = asyncio.to_thread(bus.execute, OpenAccount(account_id="ann", owner="Ann"))
    call = asyncio.create_task(calling)
    await asyncio.to_thread(bus.send, OpenAccount(account_id="bob", owner="Bob"))
    await asyncio.to_thread(bus.close)
    with pytest.raises((CommandTimeout, HeadraceError), match="closed"):
        await call


def test_a_broker_that_is_not_there_is_said_at_the_first_call_and_at_the_next() -> None:
    bus = SynchronousBus(app, Settings(broker="127.0.0.1:1", connect_ms=20))
    for _ in range(2):
        with pytest.raises(BrokerUnreachable, match="no broker answers"):
            bus.execute(OpenAccount(account_id="ann", owner="Ann"))


FORKED = """
import os, sys
from headrace import Settings
from headrace.synchronous import SynchronousBus
from samples.bank import app
from samples.bank.accounts import OpenAccount

bus = SynchronousBus(app, Settings(broker=sys.argv[1]))
bus.execute(OpenAccount(account_id="parent", owner="x"))
child = os.fork()
if child == 0:
    done = bus.execute(OpenAccount(account_id="child", owner="x"))
    os._exit(7 if done.status == "executed" else 8)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), bus.execute(OpenAccount(account_id="again", owner="x")).status)
"""


async def test_a_child_after_fork_has_a_connection_of_its_own(settings: Settings) -> None:
    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", FORKED, str(settings.broker)],
            capture_output=True, text=True, timeout=120, check=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).stdout  # fmt: skip

    assert await asyncio.to_thread(run) == "7 executed\n"
