from typing import get_type_hints

import pytest

from headrace.stores.base import AppendOutcome, EventStore, Snapshot, StoredStream
from headrace.stores.memory.store import MemoryEventStore
from headrace.stores.postgres.store import PostgresEventStore
from headrace.stores.sqlite.store import SqliteEventStore
from headrace.testing.conformance.streams import stream


def test_an_append_has_three_outcomes() -> None:
    assert {outcome.name for outcome in AppendOutcome} == {
        "APPENDED",
        "DUPLICATE_COMMAND",
        "VERSION_CONFLICT",
    }


def test_a_stored_stream_is_a_value() -> None:
    stored = StoredStream(position=1, stream=stream("a", 1))
    assert stored == StoredStream(position=1, stream=stream("a", 1))
    with pytest.raises(AttributeError):
        stored.position = 2  # type: ignore[misc] # the point of the test


def test_a_snapshot_is_a_value() -> None:
    taken = Snapshot(
        aggregate_type="Notebook", aggregate_id="a", version=1, state_version=1, body="{}"
    )
    with pytest.raises(AttributeError):
        taken.version = 2  # type: ignore[misc] # the point of the test


@pytest.mark.parametrize("adapter", [MemoryEventStore, SqliteEventStore, PostgresEventStore])
def test_every_adapter_has_the_methods_of_the_port(adapter: type) -> None:
    methods = [name for name in vars(EventStore) if not name.startswith("_")]
    assert len(methods) == 11
    for name in methods:
        assert get_type_hints(getattr(adapter, name)) == get_type_hints(getattr(EventStore, name))
