"""The bank over two groups of brokers, in processes of their own: one is killed, the other goes on, and rebuilt rows are the live ones."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace import Settings
from headrace.app import RunningApp
from headrace.rebuild.local.rebuild import rebuild_together
from headrace.stores.database.schema import upgrade
from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.name_servers import ask_name_servers
from headrace_mq.admin.spread.division import spread_topic
from headrace_mq.protocol.keys import queue_for_key
from headrace_mq.protocol.names.routes import RoutesAnswer
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances, daily_totals, statement
from samples.bank.transfers import RequestTransfer

# Starts of four processes on a busy machine, and a broker that is killed.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(320)]

QUEUES = 8
ACCOUNTS = [f"a-{number}" for number in range(12)]
# Those whose queues are in the group that stays.
STAYING = [each for each in ACCOUNTS if queue_for_key(each, QUEUES) < QUEUES // 2]
NAMES = [each.name for each in (balances, statement, daily_totals)]
PATIENT_S = 120


class Server:
    """A process of Headrace that may be killed and started again at the same address."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace", *self._arguments], stdout=log, stderr=log
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Servers:
    """A name server and two groups of one broker each."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        self.names = f"127.0.0.1:{free_port()}"
        self.address = f"nameserver://{self.names}/default/g1,g2"
        port = self.names.rpartition(":")[2]
        self.name_server = Server(folder / "names.log", "nameserver", "--port", port)
        self.groups = {
            group: Server(
                folder / f"{group}.log", "broker", "--data", str(folder / group), "--port", str(free_port()),
                "--segment-size", "8MiB", "--group", group, "--nameservers", self.names,
            )
            for group in ("g1", "g2")
        }  # fmt: skip

    async def known(self, groups: Collection[str]) -> None:
        """Returns when the name server knows the brokers of these groups."""
        async with asyncio.timeout(PATIENT_S):
            while True:
                (found,) = (await ask_name_servers(self.names, timeout_ms=30_000)).values()
                if (
                    isinstance(found, RoutesAnswer)
                    and found.ready
                    and {each.group for each in found.brokers} == set(groups)
                ):
                    return
                await asyncio.sleep(0)


@pytest.fixture
async def servers(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Servers]:
    made = Servers(tmp_path, free_port)
    with ExitStack() as stack:
        for each in (made.name_server, *made.groups.values()):
            stack.callback(each.kill)
            each.start()
        await made.known(made.groups)
        yield made


async def deposit(running: RunningApp, accounts: Collection[str], name: str) -> None:
    """Pays 10 into each account."""
    async with asyncio.timeout(PATIENT_S):
        results = await asyncio.gather(
            *(
                running.bus.execute(
                    Deposit(account_id=each, transaction_id=f"{name}-{each}", amount=10),
                    timeout_ms=PATIENT_S * 1_000,
                )
                for each in accounts
            )
        )
    assert {result.status for result in results} == {"executed"}


async def shows(running: RunningApp, expected: dict[str, int]) -> None:
    async with asyncio.timeout(PATIENT_S):
        found: dict[str, int] = {}
        while expected.items() - found.items():
            found = {row.account_id: row.balance async for row in running.read(balances).rows()}
            await asyncio.sleep(0)


async def test_the_bank_works_over_two_groups_and_goes_on_while_one_is_killed(
    servers: Servers, tmp_path: Path
) -> None:
    store, rows = (f"sqlite:///{tmp_path}/{name}.db" for name in ("events", "read"))
    for url in (store, rows):
        await upgrade(url)
    for topic, retention in (("bank.commands", "transient"), ("bank.events", "forever")):
        await spread_topic(servers.address, topic, QUEUES, retention=retention)
    settings = Settings(
        broker=servers.address, event_store=store, read_models=rows, connect_ms=60_000
    )
    async with app.run(settings) as running:
        opened = [OpenAccount(account_id=each, owner="o") for each in ACCOUNTS]
        await asyncio.gather(*(running.bus.execute(each) for each in opened))
        await deposit(running, ACCOUNTS, "first")
        transfer = RequestTransfer(transfer_id="t", source="a-0", target="a-1", amount=5)
        assert (await running.bus.execute(transfer)).status == "executed"
        expected = dict.fromkeys(ACCOUNTS, 10) | {"a-0": 5, "a-1": 15}
        await shows(running, expected)

        servers.groups["g2"].kill()
        await deposit(running, STAYING, "while one is away")
        expected |= {each: expected[each] + 10 for each in STAYING}
        # Rows of the queues that are there are up to date.
        await shows(running, {each: expected[each] for each in STAYING})

        servers.groups["g2"].start()
        await servers.known(servers.groups)
        await deposit(running, ACCOUNTS, "last")
        expected = {each: amount + 10 for each, amount in expected.items()}
        await shows(running, expected)
        outcomes = await rebuild_together(
            "samples.bank:app",
            NAMES,
            broker=servers.address,
            event_store_url=store,
            read_models_url=rows,
        )
        for report in outcomes.values():
            assert not isinstance(report, Exception), report
            assert (report.switched, report.mismatches, report.ahead) == (True, 0, 0)
        await shows(running, expected)
    async with AdminClient(servers.address) as admin:
        held = await admin.ranges(["bank.events"])
    assert len(held) == QUEUES
    # Both groups have events.
    assert {each.queue_id < QUEUES // 2 for each in held if each.end} == {True, False}
