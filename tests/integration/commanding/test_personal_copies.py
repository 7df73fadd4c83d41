"""
What the framework writes of itself holds no plain copy of a personal field: results, states of processes, what is
parked, messages, dead letters, traces and log lines. Nothing but the rows of projections may, which fold them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from sqlalchemy import inspect, select, text

from headrace import (
    Aggregate,
    AggregateId,
    App,
    ApplicationMessage,
    Command,
    CommandContext,
    DomainError,
    DomainEvent,
    EventContext,
    Index,
    Later,
    MessageContext,
    Personal,
    Process,
    Projection,
    Settings,
    Undo,
    applies,
)
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace.stores.subject_keys import DatabaseKeys
from headrace.tracing.traced_parts import Tracing
from headrace_mq import Broker, BrokerSettings, StoreSettings

# Of which no database, file or line may have a copy.
SECRET = "gout-of-ann"
Illness = Annotated[str, Personal(subject="patient")]


class Admit(Command):
    patient: AggregateId
    illness: Illness
    fails: str = ""


class Remind(Command):
    reminder: AggregateId
    patient: str
    illness: Illness


class Admitted(DomainEvent):
    patient: str
    illness: Illness
    fails: str


class Reminded(DomainEvent):
    patient: str
    illness: Illness


class Told(ApplicationMessage):
    patient: str
    illness: Illness
    fails: str


class Full(DomainError):
    pass


class Number(BaseModel):
    """What no illness is: pydantic says what it was given instead."""

    number: int


class Patient(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _admitted(self, event: Admitted) -> None: ...


class Reminder(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _reminded(self, event: Reminded) -> None: ...


class Ward(BaseModel):
    patient: str
    illness: str


class Stay(BaseModel):
    patients: int = 0


wards = Projection("wards", row=Ward, key="patient", indexes=[Index("illness", unique=True)])
stays = Process("stays", state=Stay)


@wards.fold
def admitted(row: Ward | None, event: Admitted, context: EventContext) -> Ward:
    if event.fails == "fold":
        Number.model_validate({"number": event.illness})
    same = event.fails == "unique"
    return Ward(patient=event.patient, illness=event.illness if same else event.patient)


@stays.on
def began(state: Stay | None, event: Admitted, context: EventContext) -> Iterable[Any]:
    if event.fails == "process":
        Number.model_validate({"number": event.illness})
    yield Stay(patients=1)
    # The reminded person is another one, whose key the process needs first.
    remind = Remind(
        reminder=f"r-{event.patient}", patient=f"friend of {event.patient}", illness=event.illness
    )
    yield remind
    yield Undo(remind)
    yield Later(remind, delay=timedelta(days=9))


app = App("clinic")
app.add(Patient, Reminder, wards, stays)
heard: list[str] = []


@app.handles
async def admit(command: Admit, context: CommandContext) -> None:
    if command.fails == "rejection":
        raise Full("there is no bed")
    if command.fails == "handler":
        Number.model_validate({"number": command.illness})
    patient = Patient(command.patient)
    patient.record(Admitted(patient=command.patient, illness=command.illness, fails=command.fails))
    context.add(patient)
    context.set_result({"bed": 7})
    context.publish(Told(patient=command.patient, illness=command.illness, fails=command.fails))


@app.handles
async def remind(command: Remind, context: CommandContext) -> None:
    reminder = Reminder(command.reminder)
    reminder.record(Reminded(patient=command.patient, illness=command.illness))
    context.add(reminder)


@app.on_message
async def told(message: Told, context: MessageContext) -> None:
    if message.fails == "message":
        Number.model_validate({"number": message.illness})
    heard.append(message.illness)


@app.on_event(processor="mails")
async def mail(event: Admitted, context: EventContext) -> None:
    if event.fails == "event":
        Number.model_validate({"number": event.illness})


FAILURES = ("", "rejection", "handler", "fold", "unique", "process", "message", "event")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One database for all: a key is made while a transaction locks the file."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'clinic.db'}"
    url: str = request.getfixturevalue("postgres_database")
    return url


async def texts_of(url: str) -> AsyncIterator[tuple[str, str]]:
    """Yields each table of a database with all its rows as text."""
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            for name in await connection.run_sync(lambda each: inspect(each).get_table_names()):
                rows = (await connection.execute(select(text("*")).select_from(text(name)))).all()
                yield name, repr([tuple(map(_readable, row)) for row in rows])
    finally:
        await engine.dispose()


def _readable(value: Any) -> Any:
    return bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else value


async def settled(running: Any) -> None:
    """Returns when all that can be done is done, and what fails is parked."""
    async with asyncio.timeout(60):
        while len(heard) < len(FAILURES) - 3:
            await asyncio.sleep(0)
        while len(await running.parked.read()) < 5:
            await asyncio.sleep(0)
        while len(await running.processes.all("stays")) < len(FAILURES) - 2:
            await asyncio.sleep(0)
        for failure in set(FAILURES) - {"rejection", "handler", "process"}:
            while not await running.store.read_stream(f"r-p-{failure}"):
                await asyncio.sleep(0)


async def test_only_rows_of_projections_hold_plain_values(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headrace")
    await upgrade(database)
    heard.clear()
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app.trace_with(Tracing(provider))
    folder = tmp_path / "broker"
    store = StoreSettings(directory=folder, segment_bytes=1 << 20)
    async with Broker(BrokerSettings(store=store, port=0)) as server:
        settings = Settings(
            broker=server.address, event_store=database, read_models=database,
            error_retries_max=1, retry_ms_max=1, retry_ms_min=1,
        )  # fmt: skip
        async with app.run(settings) as running:
            await running.bus.execute(Admit(patient="first", illness=SECRET, fails="unique"))
            results = [
                await running.bus.execute(Admit(patient=f"p-{each}", illness=SECRET, fails=each))
                for each in FAILURES
            ]
            await settled(running)
            assert results[0].value == {"bed": 7}
            told = repr([*results[:2], *await running.processes.all("stays")])
            entries = await running.parked.read()
            # Everything that can fail has failed.
            kinds = {each.processor.partition(":")[0] for each in entries}
            assert kinds == {"commands", "handlers", "instances", "projection"}
            told += repr(entries)
    traces = "".join(span.to_json() for span in exporter.get_finished_spans())
    tables = [name async for name, content in texts_of(database) if SECRET in content]
    assert [name for name in tables if not name.startswith("wards")] == []
    assert {"wards"} == {name.partition("_")[0] for name in tables}
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert files
    assert [each for each in files if SECRET.encode() in each.read_bytes()] == []
    # What failed is told, without what it was given.
    lines = [each.getMessage() for each in caplog.records] + [caplog.text]
    for each in (told, traces, "".join(lines)):
        assert "int_parsing" in each
    assert any(b"int_parsing" in each.read_bytes() for each in files), "the dead letter"
    assert SECRET not in told
    assert SECRET not in traces
    assert [each for each in lines if SECRET in each] == []
    keys = DatabaseKeys(database)
    assert "friend of p-" in {each.subject for each in keys.subjects()}
    keys.close()
