"""`headrace events`: what `export` says it wrote, what `republish` needs; its work is tested over real files."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace import Aggregate, App, DomainEvent, applies
from headrace.cli.application.events import _delete, republish
from headrace.domain.stream import EventStream
from headrace.errors import SchemaOutOfDate
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import TopicNotFound
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings


class Returned(DomainEvent):
    title: str


class Shelf(Aggregate):
    @applies
    def _returned(self, event: Returned) -> None:
        pass


def shelves() -> App:
    app = App("shelves")
    app.add(Shelf)
    return app


@pytest.fixture(scope="module")
def returns(broker_address: str) -> None:
    """Two events, one of a type that the application has forgotten."""
    encode = shelves().serializer.encode_stream

    async def publish() -> None:
        async with Producer(broker_address) as producer:
            await producer.create_topic("shelves.events", queues=1, retention="forever")
            for version, name in ((1, b"Returned"), (2, b"Forgotten")):
                stream = EventStream(
                    aggregate_type="Shelf", aggregate_id="s-1", version=version,
                    command_id=str(version), correlation_id="c",
                    recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
                    events=(Returned(title="Faust"),),
                )  # fmt: skip
                body = encode(stream).replace(b"Returned", name)
                await producer.send(Message(topic="shelves.events", key="s-1", body=body))

    asyncio.run(publish())


@pytest.fixture
def export(returns: None, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType("unit_shelves")
    module.app = shelves()  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "unit_shelves", module)

    def run_it(*arguments: str) -> Any:
        return run(
            "events", "export", str(tmp_path / "out"), *arguments,
            "--app", "unit_shelves:app", "--event-store", "memory://", "--unsealed",
        )  # fmt: skip

    return run_it


def test_export_reports_its_part_and_a_second_export_that_there_is_nothing(
    export: Any, tmp_path: Path
) -> None:
    first = export()
    assert first.status == 0
    assert first.output.startswith("2 messages with 1 events are in part 1 of")
    assert "  Returned: 1\n  Forgotten version 1: 1, unknown to the application" in first.output
    assert export().output == f"{tmp_path / 'out'} holds everything already\n"


def test_json_is_the_description_of_the_part(export: Any, tmp_path: Path) -> None:
    told = json.loads(export("--to", "parquet", "--json").output)
    kept = json.loads((tmp_path / "out/export-000001/export.json").read_text(encoding="utf-8"))
    assert len(kept.pop("files")) >= 3
    assert told == kept
    assert (told["messages"], told["end"]) == (2, {"0": 2})


def test_another_format_is_a_mistake(export: Any) -> None:
    done = export("--to", "csv")
    assert done.status == 2
    assert "use 'parquet'" in done.output


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path / "mq", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    yield broker
    await broker.aclose()


def test_republish_makes_no_store_that_is_not_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none.db'}"
    with pytest.raises(SchemaOutOfDate, match="there is no database"):
        republish(app_path="samples.bank:app", event_store=url)
    assert list(tmp_path.iterdir()) == []


async def test_a_missing_topic_need_not_be_deleted(broker: Broker) -> None:
    await _delete(broker.address, "bank.events")


async def test_an_idle_topic_is_deleted_with_offsets_of_groups_left_in_it(broker: Broker) -> None:
    async with AdminClient(broker.address) as admin:
        await admin.create_topic("bank.events", 1, "forever")
        await admin.create_topic("bank.commands", 1)
        await admin.reset_offsets("g", "earliest", topics=["bank.events", "bank.commands"])
        await _delete(broker.address, "bank.events")
        with pytest.raises(TopicNotFound):
            await admin.topic("bank.events")
        assert (await admin.topic("bank.commands")).unwritable == []
