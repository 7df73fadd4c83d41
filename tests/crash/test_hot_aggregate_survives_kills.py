"""kill -9 of a service with many callers on one aggregate: it answers again at once, and rightly."""

import asyncio
import signal
from collections.abc import Iterator
from itertools import count

from headrace import CommandBus
from headrace.stores.open import open_event_store
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from tests.crash.conftest import Bank

CALLERS = 200
KILLS = 2
# Each of these answers before a kill, and after it.
ANSWERS = 2_000
# Of a machine that does other things besides; without them it takes a quarter of a second.
BACK_SECONDS_MAX = 100


class Callers:
    """They deposit on one account, each as soon as its last deposit was answered."""

    def __init__(self, bus: CommandBus) -> None:
        self._bus = bus
        self.balances: list[int] = []
        self._news = asyncio.Condition()

    async def deposit(self, numbers: Iterator[int]) -> None:
        while True:
            command = Deposit(account_id="hot", transaction_id=str(next(numbers)), amount=1)
            result = await self._bus.execute(command)
            assert result.ok, result
            self.balances.append(result.value["balance"])
            async with self._news:
                self._news.notify_all()

    async def until_answers(self, number: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: len(self.balances) >= number)


async def test_a_hot_aggregate_answers_again_within_seconds_of_a_restart(bank: Bank) -> None:
    numbers = count()
    async with app.client(bank.settings) as bus:
        await bus.execute(OpenAccount(account_id="hot", owner="o"))
        callers = Callers(bus)
        async with asyncio.TaskGroup() as tasks:
            calling = [tasks.create_task(callers.deposit(numbers)) for _ in range(CALLERS)]
            for _ in range(KILLS):
                await callers.until_answers(len(callers.balances) + ANSWERS)
                await bank.service.end(signal.SIGKILL)
                answered = len(callers.balances)
                await bank.service.start()
                async with asyncio.timeout(BACK_SECONDS_MAX):
                    await callers.until_answers(answered + CALLERS)
            for call in calling:
                call.cancel()
    # Every deposit that was answered had its effect, once.
    assert len(set(callers.balances)) == len(callers.balances)
    await bank.service.end(signal.SIGTERM)
    store = await open_event_store(bank.event_store, app.serializer)
    streams = await store.read_stream("hot")
    await store.aclose()
    deposited = [event.transaction_id for each in streams[1:] for event in each.events]
    assert len(set(deposited)) == len(deposited) >= len(callers.balances)
