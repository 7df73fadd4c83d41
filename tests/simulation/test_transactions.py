"""Deployments whose producers send in transactions, one per seed, under all the faults of the others.

A database that survives everybody says what became of each transaction; whoever asks it too early uses
the transaction's id up. What it says is committed has to be delivered, once, and nothing else ever.
"""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq.broker.transactions.drafts import Drafts
from headrace_mq.client.transactions.checks import Decision, Undecided
from headrace_mq.client.transactions.transactional_producer import (
    Transaction,
    TransactionalProducer,
)
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import BrokerSettings, ProducerSettings
from headrace_mq.testing.history import Acknowledged, Sent, TakenBack

ADDRESS, TOPIC = "broker:9876", "t"
SEEDS, SEEDS_PER_TEST = 12, 4
# A planted defect is found within so many seeds.
SEEDS_PER_DEFECT = 20


class LocalFailed(Exception):
    """The application's own transaction failed, before or after it was done."""


class Transactional:
    """Put before a world: its producers send most messages in transactions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.database: dict[bytes, Decision] = {}
        self.transactional: dict[str, asyncio.Task[TransactionalProducer]] = {}
        self.answers = False

    def _settings(self) -> BrokerSettings:
        # However long a fault takes, nothing is given up: its outcome stands in the database.
        return replace(
            super()._settings(),
            transaction_timeout_ms=500,
            transaction_check_ms=1_000,
            transaction_checks_max=1_000_000,
        )

    async def boot(self) -> None:
        await super().boot()
        if not self.answers:
            # Somebody of the group is there when all the others are gone.
            self.answers = True
            process, _ = self.sim.start("answering", "answering")
            process.spawn(self._started())

    async def _started(self) -> TransactionalProducer:
        settings = ProducerSettings(send_timeout_ms=self.options.send_timeout_ms)
        while True:
            producer = TransactionalProducer(
                ADDRESS, group="g", checker=self._look, settings=settings, clock=self.clock
            )
            with suppress(MessageQueueError):
                await producer.start()
                return producer

    async def _look(self, undecided: Undecided) -> Decision:
        await self._handle()
        body = undecided.id.encode()
        if body not in self.database:
            self._decide(body, Decision.ROLLBACK)
        return self.database[body]

    def _decide(self, body: bytes, decision: Decision) -> None:
        self.database[body] = decision
        if decision is Decision.COMMIT:
            self.note(Acknowledged(self.now_ms(), body, QueueRef(TOPIC, 0), -1))
        else:
            self.note(TakenBack(self.now_ms(), body, sure=True))

    async def _send(self, producer: Any, name: str, number: int) -> None:
        if self.chosen.random() < 0.3:
            await super()._send(producer, name, number)
            return
        key = f"key-{self.chosen.randrange(self.options.keys)}"
        body = f"{name}/{key}/{number}".encode()

        async def local(_: Transaction) -> Decision:
            await self.sim.elapse(self.chosen.uniform(0, 3))
            fails = self.chosen.random()
            if fails < 0.1:
                raise LocalFailed
            if body not in self.database:
                self._decide(body, self.chosen.choice((Decision.COMMIT, Decision.ROLLBACK)))
            if fails < 0.2:
                raise LocalFailed
            return self.database[body]

        self.note(Sent(self.now_ms(), body, key, name))
        if name not in self.transactional:
            self.transactional[name] = asyncio.ensure_future(self._started())
        sending = await self.transactional[name]
        message = Message(topic=TOPIC, key=key, body=body)
        try:
            await sending.send_in_transaction(message, local, transaction_id=body.decode())
        except (MessageQueueError, LocalFailed) as error:
            self.sim.trace(f"{name} leaves {body!r} undecided: {type(error).__name__}")

    async def _caught_up(self) -> None:
        await asyncio.wait(self.sending)
        async with self._admin() as admin:
            while (await admin.transactions()).undecided:
                await self.sim.elapse(0.5)
        # What was decided last may become visible with the next sync.
        await self.sim.elapse(1)
        await super()._caught_up()


@pytest.fixture
def transactional(world: type[Any]) -> type[Any]:
    """Worlds whose producers send in transactions."""
    return type("TransactionalWorld", (Transactional, world), {})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_messages_of_committed_transactions_are_delivered_once_and_no_others(
    transactional: Any, first: int
) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        life = transactional(seed)
        broken = life.run()
        if broken:
            sys.stdout.write("\n".join([*life.sim.trace.lines, ""]))
            promises = "\n".join(f"{promise}: {sentence}" for promise, sentence in broken)
            pytest.fail(f"seed {seed}\n{promises}")


def commit_everything(drafts: Drafts, ends: Iterable[Any]) -> list[Any]:
    return [one for end in ends for one in drafts._decide(both(end))]


def both(end: Any) -> Any:
    return replace(end, commit=[*end.commit, *end.roll_back], roll_back=[])


@pytest.mark.timeout(300)
def test_a_broker_that_commits_what_was_rolled_back_is_found_out(
    transactional: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Drafts, "decide", commit_everything)
    monkeypatch.setattr(transactional, "faults", ("come",))
    for seed in range(SEEDS_PER_DEFECT):
        if "cancelled" in {promise for promise, _ in transactional(seed).run()}:
            return
    pytest.fail(f"{SEEDS_PER_DEFECT} seeds did not find it")
