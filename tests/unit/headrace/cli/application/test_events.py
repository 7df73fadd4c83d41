"""`headrace events export` tells what it wrote, and that there was nothing to write."""

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace import Aggregate, App, DomainEvent, applies
from headrace.domain.stream import EventStream
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message


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


def test_what_was_written_is_told_and_the_second_time_that_there_is_nothing(
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
    assert told == kept
    assert (told["messages"], told["end"]) == (2, {"0": 2})


def test_another_format_is_a_mistake(export: Any) -> None:
    done = export("--to", "csv")
    assert done.status == 2
    assert "use 'parquet'" in done.output
