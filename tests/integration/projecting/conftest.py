"""The bank's events, both databases, and the parts of a live projection put together."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.message import Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection
from headrace.projections.runner import ProjectionRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import JsonSerializer
from headrace.settings import Settings
from headrace.stores.memory.store import MemoryEventStore
from headrace.transports.base import Outgoing, QueueId
from headrace.transports.local import LocalTransport
from samples.bank.accounts import (
    AccountClosed,
    AccountOpened,
    Deposited,
    MoneyReceived,
    MoneyReturned,
    MoneySent,
    Withdrawn,
)

TOPIC = "bank.events"
QUEUES = 2


@dataclass
class Ledger:
    """Accounts that decide nothing and write down everything, so that histories are easy to make.

    Attributes:
        streams: everything that happened, in order.
    """

    streams: list[EventStream] = field(default_factory=list)
    _versions: dict[str, int] = field(default_factory=dict)
    _balances: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    def act(self, account: str, kind: str, amount: int) -> None:
        """Writes down what an action of some kind does to an account."""
        self._count += 1
        if account not in self._versions:
            self._write(account, AccountOpened(owner=f"owner of {account}", overdraft_limit=None))
        balance = self._balances.get(account, 0)
        name = f"t{self._count}"
        match kind:
            case "deposit":
                self._move(account, balance + amount, Deposited, transaction_id=name, amount=amount)
            case "withdraw":
                self._move(account, balance - amount, Withdrawn, transaction_id=name, amount=amount)
            case "send":
                self._move(
                    account,
                    balance - amount,
                    MoneySent,
                    transfer_id=name,
                    target="x",
                    amount=amount,
                )
            case "there and back":
                sent = MoneySent(
                    transfer_id=name, target="x", amount=amount, balance=balance - amount
                )
                back = MoneyReturned(
                    transfer_id=name, amount=amount, balance=balance, reason="refused"
                )
                self._write(account, sent, back)
            case "receive":
                self._move(
                    account,
                    balance + amount,
                    MoneyReceived,
                    transfer_id=name,
                    source="x",
                    amount=amount,
                )
            case "close":
                self._write(account, AccountClosed())
            case "refuse":
                self._reject(account)

    def _move(self, account: str, balance: int, event: Any, **fields: Any) -> None:
        self._balances[account] = balance
        self._write(account, event(balance=balance, **fields))

    def _write(self, account: str, *events: DomainEvent) -> None:
        version = self._versions[account] = self._versions.get(account, 0) + 1
        self.streams.append(self._stream(account, version=version, events=events))

    def _reject(self, account: str) -> None:
        rejection = Rejection(
            error="No", sentence="no", command_name="Withdraw", command_version=1, command_data={}
        )
        self.streams.append(self._stream(account, version=None, rejection=rejection))

    def _stream(self, account: str, **fields: Any) -> EventStream:
        return EventStream(
            aggregate_type="Account",
            aggregate_id=account,
            command_id=f"c{len(self.streams)}",
            correlation_id="c",
            recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
            **fields,
        )


@dataclass
class Bank:
    """One event topic, one event store, one database of read models."""

    read_models: ReadModels
    serializer: JsonSerializer
    transport: LocalTransport = field(default_factory=LocalTransport)
    store: MemoryEventStore = field(default_factory=MemoryEventStore)
    topic: str = TOPIC
    make_ledger: Callable[[], Ledger] = Ledger

    async def publish(self, stream: EventStream) -> None:
        """Publishes a stream as the command service does."""
        headers = {"kind": "events" if stream.rejection is None else "rejection"}
        await self.transport.publish(
            Outgoing(
                topic=self.topic,
                key=stream.aggregate_id,
                headers=headers,
                body=self.serializer.encode_stream(stream),
            )
        )

    def ends(self) -> dict[QueueId, int]:
        """Returns the end of every queue that has something."""
        queues = [(self.topic, number) for number in range(QUEUES)]
        ends = {queue: self.transport.queue(queue).end for queue in queues}
        return {queue: end for queue, end in ends.items() if end}

    def runner(self, projection: Any, **changes: Any) -> ProjectionRunner[Any]:
        """Returns a runner of a projection over all this."""
        parts = {
            "projection": projection,
            "app_name": "bank",
            "read_models": self.read_models,
            "store": self.store,
            "transport": self.transport,
            "serializer": self.serializer,
            "settings": Settings(
                retry_ms_min=1, retry_ms_max=1, error_retries_max=1, projection_batch_max=7
            ),
            "switch_check_ms": 5,
        }
        return ProjectionRunner(**(parts | changes))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty read database, one of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'read.db'}"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture
async def read_models(
    database_url: str, give_schema: Callable[[str], Awaitable[None]]
) -> AsyncIterator[ReadModels]:
    await give_schema(database_url)
    models = ReadModels(database_url)
    yield models
    await models.aclose()


@pytest.fixture
def bank_serializer() -> JsonSerializer:
    events: Registry[DomainEvent] = Registry("event")
    for event_type in (
        AccountOpened,
        AccountClosed,
        Deposited,
        Withdrawn,
        MoneySent,
        MoneyReceived,
        MoneyReturned,
    ):
        events.add(event_type)
    commands: Registry[Command] = Registry("command")
    return JsonSerializer(commands, events)


@pytest.fixture
def make_bank(read_models: ReadModels, bank_serializer: JsonSerializer) -> Callable[[], Any]:
    async def make() -> Bank:
        bank = Bank(read_models=read_models, serializer=bank_serializer)
        await bank.transport.ensure_topic(TOPIC, queues=QUEUES, forever=True)
        return bank

    return make
