"""A body says whose events it holds, and a reader sees the fields that it asks for."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.stream_body import (
    MALFORMED,
    StreamBody,
    aggregate_of,
    body_error,
    body_reader,
    check_version,
    origin_of,
)
from headrace.errors import NoEventStream

NAMES = [each.name for each in msgspec.structs.fields(StreamBody)]
BODY = StreamBody(
    aggregate_type="Shop",
    aggregate_id="a",
    version=1,
    command_id="c",
    correlation_id="d",
    recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
    items={"user": "u"},
)
WRITTEN = msgspec.json.encode(BODY)


@given(st.sets(st.sampled_from(NAMES)))
def test_a_reader_sees_the_fields_that_it_asks_for(names: set[str]) -> None:
    found = body_reader(*names)(WRITTEN)
    assert {name: getattr(found, name) for name in names} == {
        name: getattr(BODY, name) for name in names
    }
    assert not any(hasattr(found, name) for name in set(NAMES) - names)


@given(st.binary(max_size=40) | st.just(WRITTEN), st.data())
def test_the_owner_of_a_damaged_body_is_known_or_not(body: bytes, data: st.DataObject) -> None:
    cut = bytearray(body)
    if cut:
        cut[data.draw(st.integers(0, len(cut) - 1))] = data.draw(st.integers(0, 255))
    owner, origin = aggregate_of(bytes(cut)), origin_of(bytes(cut))
    assert owner is None or isinstance(owner, str)
    assert origin is None or origin[0] == owner
    found = body_error(bytes(cut), ValueError("why"))
    assert isinstance(found, NoEventStream) == (owner is None)


@pytest.mark.parametrize(
    ("version", "events", "right"), [(1, [1], True), (None, [], True), (1, [], False), (None, [1], False)]
)  # fmt: skip
def test_a_stream_has_a_version_and_events_or_neither(
    version: Any, events: Any, right: bool
) -> None:
    stream = msgspec.defstruct("Stream", ["version", "events"])(version, events)
    if right:
        check_version(stream)
    else:
        with pytest.raises(MALFORMED, match="a version and events, or neither"):
            check_version(stream)
