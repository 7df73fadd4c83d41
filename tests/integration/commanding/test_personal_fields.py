"""Personal fields in services and clients, where the application says nothing of keys."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    Personal,
    Settings,
    applies,
)
from headrace.errors import SubjectKeysError
from headrace.stores.subject_keys import DatabaseKeys
from headrace_mq import Broker, BrokerSettings, StoreSettings

Email = Annotated[str, Personal(subject="customer_id")]


class SetEmail(Command):
    customer_id: AggregateId
    email: Email


class EmailSet(DomainEvent):
    customer_id: str
    email: Email


class Customer(Aggregate):
    def initial_state(self) -> None:
        self.email = ""

    @applies
    def _email_set(self, event: EmailSet) -> None:
        self.email = event.email


@pytest.fixture
def app() -> App:
    made = App("customers")
    made.add(Customer)

    @made.handles
    async def set_email(command: SetEmail, context: CommandContext) -> None:
        customer = await context.get_or_add(
            Customer, command.customer_id, lambda: Customer(command.customer_id)
        )
        context.set_result(customer.email)
        customer.record(EmailSet(customer_id=command.customer_id, email=command.email))

    return made


def change(number: int) -> SetEmail:
    return SetEmail(customer_id="c-1", email=f"ann-{number}@example.org")


async def test_keys_are_in_memory_with_the_events(app: App) -> None:
    async with app.run_local() as running:
        await running.bus.execute(change(1))
        result = await running.bus.execute(change(2))
        assert result.value == "ann-1@example.org"
        (stored, *_) = await running.store.read_stream("c-1")
        assert stored.events[0] == EmailSet(customer_id="c-1", email="ann-1@example.org")


async def test_a_client_makes_the_key_that_the_service_reads(app: App, tmp_path: Path) -> None:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    url = f"sqlite:///{tmp_path / 'events.db'}"
    async with Broker(BrokerSettings(store=store, port=0)) as broker:
        with_keys = Settings(
            broker=broker.address,
            event_store=url,
            read_models=f"sqlite:///{tmp_path / 'read.db'}",
        )
        async with app.run(with_keys), app.client(with_keys) as client:
            await client.execute(change(1))
            # Another process, which reads aggregates from the store.
            keys = DatabaseKeys(url)
            assert [each.subject for each in keys.subjects()] == ["c-1"]
            keys.close()
            assert (await client.execute(change(2))).value == "ann-1@example.org"
        async with app.run(with_keys) as running:
            assert (await running.bus.execute(change(3))).value == "ann-2@example.org"
        async with app.client(Settings(broker=broker.address)) as client:
            with pytest.raises(SubjectKeysError, match="event_store of the settings"):
                await client.send(change(4))


@dataclass(frozen=True)
class Frozen(Exception):
    email: str


class ReadOnlyDetail(Exception):
    @property
    def detail(self) -> str:
        return "ann-1@example.org"


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("kind", [Frozen, ReadOnlyDetail, BrokenText])
async def test_a_handlers_error_that_cannot_be_changed_parks_its_command_alone(
    app: App, kind: type[Exception]
) -> None:
    class Fail(Command):
        customer_id: AggregateId
        email: Email

    class FailToo(Command):
        customer_id: AggregateId

    @app.handles
    async def fail(command: Fail, context: CommandContext) -> None:
        raise kind(command.email)

    @app.handles
    async def fail_too(command: FailToo, context: CommandContext) -> None:
        raise kind("x")

    async with app.run_local(
        Settings(error_retries_max=1, retry_ms_max=1, retry_ms_min=1)
    ) as running:
        failed = await running.bus.execute(Fail(customer_id="c-1", email="ann-1@example.org"))
        assert failed.status == "failed"
        assert failed.sentence == f"{kind.__name__}, whose text cannot be read or changed"
        (letter,) = await running.parked.read()
        assert "ann-1" not in repr(letter)
        # The service goes on, without personal fields as well.
        assert (await running.bus.execute(FailToo(customer_id="c-2"))).status == "failed"
        assert (await running.bus.execute(change(2))).ok


async def test_a_forgotten_person_reads_as_the_placeholder_after_a_restart(
    app: App, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'events.db'}"
    settings = Settings(event_store=url, read_models=f"sqlite:///{tmp_path / 'read.db'}")
    async with app.run_local(settings) as running:
        await running.bus.execute(change(1))
    keys = DatabaseKeys(url)
    assert keys.forget("c-1")
    keys.close()
    async with app.run_local(settings) as running:
        assert (await running.bus.execute(change(2))).value == "[forgotten]"
        *_, last = await running.store.read_stream("c-1")
        assert last.events[0] == EmailSet(customer_id="c-1", email="[forgotten]")
