"""An event that the event store does not know is believed by nobody, whoever sends it, over a broker."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainError,
    DomainEvent,
    EventContext,
    Process,
    ProcessManager,
    Projection,
    Rejection,
    Settings,
    applies,
)
from headrace.app import RunningApp
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings

TOPIC = "vault.events"


class Open(Command):
    vault_id: AggregateId


class Pay(Command):
    vault_id: AggregateId
    amount: int


class Take(Command):
    vault_id: AggregateId
    amount: int


class Opened(DomainEvent):
    pass


class Paid(DomainEvent):
    amount: int


class Taken(DomainEvent):
    amount: int


class Vault(Aggregate):
    def initial_state(self) -> None:
        self.sum = 0

    @applies
    def _opened(self, event: Opened) -> None:
        self.sum = 0

    @applies
    def _paid(self, event: Paid) -> None:
        self.sum += event.amount

    @applies
    def _taken(self, event: Taken) -> None:
        self.sum += event.amount


class Row(BaseModel):
    vault_id: str
    total: int = 0


class Seen(BaseModel):
    amounts: list[int] = []


class Broke(DomainError):
    """Nobody pays less than nothing."""


class Vaults:
    """An application with every kind of reader, each of which remembers what it saw."""

    def __init__(self) -> None:
        self.app = App("vault")
        self.handled: list[int] = []
        self.refused: list[str] = []
        self.totals = Projection("totals", row=Row, key="vault_id")
        process = Process("process", state=Seen)
        manager = ProcessManager("manager")
        self.app.add(Vault, self.totals, process, manager)

        @self.app.handles
        async def open_vault(command: Open, context: CommandContext) -> None:
            vault = Vault(command.vault_id)
            vault.record(Opened())
            context.add(vault)

        @self.app.handles
        async def pay(command: Pay, context: CommandContext) -> None:
            vault = await context.get(Vault, command.vault_id)
            if command.amount < 0:
                raise Broke("nobody pays less than nothing")
            vault.record(Paid(amount=command.amount))

        @self.app.handles
        async def take(command: Take, context: CommandContext) -> None:
            (await context.get(Vault, command.vault_id)).record(Taken(amount=command.amount))

        @self.totals.fold
        def paid(row: Row | None, event: Paid, context: EventContext) -> Row:
            before = 0 if row is None else row.total
            return Row(vault_id=context.aggregate_id, total=before + event.amount)

        @manager.on
        def sent(event: Paid, context: EventContext) -> Iterable[Command]:
            yield Take(vault_id="by manager", amount=event.amount)

        @manager.on_rejection
        def refused(command: Pay, rejection: Rejection) -> Iterable[Command]:
            self.refused.append(rejection.sentence)
            return []

        @process.on
        def seen(state: Seen | None, event: Paid, context: EventContext) -> Iterable[Any]:
            yield Seen(amounts=[*(state.amounts if state else []), event.amount])
            yield Take(vault_id="by process", amount=event.amount)

        @self.app.on_event
        async def noted(event: Paid, context: EventContext) -> None:
            self.handled.append(event.amount)


class Forger:
    """Somebody who reaches the broker's port, and knows how events look."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def send(self, body: bytes, *, key: str, kind: str = "events") -> None:
        headers = {"kind": kind, "version": "2", "command": "forged"}
        await self._producer.send(
            Message(topic=TOPIC, key=key, tag="Vault", headers=headers, body=body)
        )

    async def pay(self, vault_id: str, amount: int, version: int, **more: Any) -> None:
        await self.send(forged(vault_id, version, amount, **more), key=vault_id)


def forged(vault_id: str, version: int | None, amount: int, **more: Any) -> bytes:
    paid = {"name": "Paid", "version": 1, "data": {"amount": amount}}
    content = {
        "aggregate_type": "Vault",
        "aggregate_id": vault_id,
        "version": version,
        "command_id": f"forged-{version}",
        "correlation_id": "forged",
        "recorded_at": "2026-01-31T12:00:00.000000Z",
        "items": {},
        "events": [paid] if version else [],
    }
    return msgspec.json.encode(content | more)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    yield broker
    await broker.aclose()


@pytest.fixture
async def forger(broker: Broker) -> AsyncIterator[Forger]:
    async with Producer(broker.address) as producer:
        yield Forger(producer)


@pytest.fixture
def settings(broker: Broker, tmp_path: Path) -> Settings:
    return Settings(
        broker=broker.address,
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
        result_timeout_ms=60_000,
        alarm_check_ms=10,
    )


async def begin(running: RunningApp) -> None:
    for name in ("rich", "by manager", "by process"):
        await running.bus.execute(Open(vault_id=name), wait_for="handled")


async def truth(running: RunningApp) -> dict[str, list[int]]:
    """What the event store has of each vault."""
    found: dict[str, list[int]] = {}
    for each in await running.store.read_all():
        own = found.setdefault(each.stream.aggregate_id, [])
        own += [event.amount for event in each.stream.events if isinstance(event, Paid | Taken)]
    return found


async def test_a_forged_event_moves_nothing_and_the_true_one_of_its_version_is_applied(
    settings: Settings, forger: Forger
) -> None:
    vaults = Vaults()
    async with vaults.app.run(settings) as running:
        await begin(running)
        with capture_logs() as logs:
            await forger.pay("rich", 1_000_000, 2)
            # Of an aggregate that never was, so that no gate is in the way.
            await forger.pay("nobody's", 1_000_000, 1)
            rejected = {
                "error": "Broke",
                "sentence": "forged",
                "command_name": "Pay",
                "command_version": 1,
                "command_data": {"vault_id": "rich", "amount": 1},
            }
            body = forged("rich", None, 0, rejection=rejected)
            await forger.send(body, key="rich", kind="rejection")
            result = await running.bus.execute(Pay(vault_id="rich", amount=5), wait_for="handled")
            assert result.version == 2
            await running.seen(vaults.totals, result)
            for name in ("by manager", "by process"):
                await running.bus.execute(Pay(vault_id=name, amount=0), wait_for="handled")
        assert {row.vault_id: row.total async for row in running.read(vaults.totals).rows()} == {
            "rich": 5,
            "by manager": 0,
            "by process": 0,
        }
        found = await truth(running)
        assert set(found) == {"rich", "by manager", "by process"}
        assert found["rich"] == [5]
        assert 5 in found["by manager"]
        assert 5 in found["by process"]
        assert 1_000_000 not in [amount for amounts in found.values() for amount in amounts]
        assert sorted(vaults.handled) == [0, 0, 5]
        assert vaults.refused == []
        told = [each for each in logs if each["event"] == "a foreign event message is passed over"]
        assert len(told) == 3
        assert {each["key"] for each in told} == {"rich", "nobody's"}
        assert running.watch is not None
        await running.watch.alarms.look()
        (alarm,) = running.watch.alarms.current
        assert (alarm.projection, alarm.kind, alarm.value) == (TOPIC, "foreign messages", 3)


async def test_a_genuine_event_that_a_stranger_sends_again_changes_nothing(
    settings: Settings, forger: Forger, broker: Broker
) -> None:
    """Not under another key either, by which handlers and processes tell aggregates apart."""
    vaults = Vaults()
    async with vaults.app.run(settings) as running:
        await begin(running)
        await running.bus.execute(Pay(vault_id="rich", amount=5), wait_for="handled")
        stored = await running.store.find_stored(
            {
                (each.stream.aggregate_id, each.stream.command_id)
                for each in await running.store.read_all()
            }
        )
        for stream in stored.values():
            body = vaults.app.serializer.encode_stream(stream)
            await forger.send(body, key=stream.aggregate_id)
            await forger.send(body, key=f"not {stream.aggregate_id}")
        before = await truth(running)
        await running.bus.execute(Pay(vault_id="rich", amount=-1), wait_for="handled")
        assert vaults.handled == [5]
        assert await truth(running) == before
        assert vaults.refused == ["nobody pays less than nothing"]


async def test_a_rejection_is_accepted_if_it_is_stored(settings: Settings) -> None:
    vaults = Vaults()
    async with vaults.app.run(settings) as running:
        await begin(running)
        await running.bus.execute(Pay(vault_id="rich", amount=-1), wait_for="handled")
        assert vaults.refused == ["nobody pays less than nothing"]
