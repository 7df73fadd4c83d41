"""Streams that are brought together by aggregate, whichever task has read them and wherever they stand."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.projections.definition.fold import fold_streams
from headrace.rebuild.left_out import LEFT_OUT_MAX
from headrace.spark.executor import streams as streams_module
from headrace.spark.executor.fold import (
    MISSING,
    QUEUE,
    RECORD_ARROW_SCHEMA,
    ROW,
    STREAM,
    TALLY,
    UNREAD,
    VERSION,
)
from headrace.spark.executor.gate import StreamGate
from headrace.spark.executor.streams import (
    find_moved,
    fold_together,
    read_streams,
    route_together,
    whole_aggregates,
)
from headrace.spark.rows import RowCodec
from headrace_mq.protocol.keys import queue_for_key
from headrace_mq.spark.offsets import split_slices

ORDER = [(name, "ascending") for name in ("key", "moment", "queue", "offset", "turn")]

# Which aggregate, which of its versions, in which queue, and whether a rejection stands there instead.
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 5),
        st.integers(0, 1),
        st.sampled_from([False] * 6 + [True]),
    ),
    min_size=1,
    max_size=30,
)


def numbers(plan: Any) -> Iterator[pa.RecordBatch]:
    """What Spark hands to the first step."""
    return iter([pa.RecordBatch.from_pydict({"id": [task]}) for task in range(len(plan.tasks))])


def brought(plan: Any) -> pa.Table:
    """What tasks read, brought together as in one task."""
    return pa.Table.from_batches(read_streams(plan, numbers(plan)), RECORD_ARROW_SCHEMA).sort_by(
        ORDER
    )


def told(batches: Any) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for batch in batches:
        for one in batch.to_pylist():
            found.setdefault(one["kind"], Counter())[one["key"]] += one["number"]
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=MESSAGES, piece=st.integers(1, 9), batch=st.integers(1, 5))
def test_any_division_of_any_order_is_what_passes_a_gate(
    ledger: Any, topic: Any, make_plan: Any, messages: list[tuple[str, int, int, bool]],
    piece: int, batch: int,
) -> None:  # fmt: skip
    for bodies in topic.bodies.values():
        bodies.clear()
    for key, version, queue, refused in messages:
        booked = ledger.Booked(partner="p", amount=version * 7)
        made = ledger.rejection(key) if refused else ledger.stream(key, version, booked)
        topic.publish(made, queue=queue)
    plan = make_plan("accounts", list(split_slices(topic.slices(), piece)))
    whole = brought(plan)
    streams = [one for one in whole.to_pylist() if one["kind"] == STREAM]
    assert len(streams) == sum(not refused for *_, refused in messages)
    gates: dict[str, StreamGate] = {}
    passed = []
    for one in streams:
        gate = gates.setdefault(one["key"], StreamGate({}))
        passed += gate.admit([ledger.serializer.decode_stream(one["data"])])
    for gate in gates.values():
        passed += gate.finish()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streams_module, "_PIECE_MAX", batch)
        made = list(fold_together(plan, iter(whole.to_batches(max_chunksize=batch))))
    found = told(made)
    counted: Counter[str] = Counter()
    for gate in gates.values():
        counted += Counter({name: getattr(gate, name) for name in ("events", "duplicates", "gaps")})
    assert found.get(TALLY, Counter()) == counted
    assert found.get(VERSION, Counter()) == {
        key: gate.versions[key] for key, gate in gates.items() if gate.versions
    }
    missing = {each.aggregate_id for gate in gates.values() for each in gate.missing}
    assert set(found.get(MISSING, ())) == missing
    codec = RowCodec(ledger.accounts)
    rows = [
        codec.row(one["data"]) for each in made for one in each.to_pylist() if one["kind"] == ROW
    ]
    wanted = fold_streams(ledger.accounts, {}, passed)
    assert {row.account_id: row for row in rows} == wanted
    measured = sum(found[QUEUE][f"ledger.events/{queue} messages"] for queue in (0, 1))
    assert measured == len(streams)


def test_an_aggregate_is_left_out_in_every_queue_behind_what_does_not_decode(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    streams = [
        ledger.stream("a", version, ledger.Booked(partner="p", amount=1)) for version in range(1, 6)
    ]
    # It moves to the other queue, where offsets are lower.
    topic.publish(*streams[:3], queue=1)
    topic.publish(*streams[3:], ledger.stream("b", 1, ledger.Ended()), queue=0)
    key, headers, body = topic.bodies[1][2]
    topic.bodies[1][2] = (key, headers, body.replace(b'"amount"', b'"lost"'))
    plan = make_plan("accounts", topic.slices())
    whole = brought(plan)
    # The order in which the broker stored them; the clock of this one is of no use.
    whole = whole.sort_by([("key", "ascending"), ("queue", "descending"), ("offset", "ascending")])
    for step in (fold_together, route_together):
        made = list(step(plan, iter(whole.to_batches(max_chunksize=2))))
        found = told(made)
        assert found[VERSION] == {"a": 2, "b": 1}
        assert MISSING not in found
        (sentence,) = (
            one["data"].decode()
            for batch in made
            for one in batch.to_pylist()
            if one["kind"] == UNREAD
        )
        assert "at ledger.events/1 offset 2 (aggregate a) does not decode" in sentence
        assert found[QUEUE]["ledger.events/0 messages"] == 3
    assert LEFT_OUT_MAX > 1


def test_messages_without_a_key_go_where_their_aggregate_goes(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    topic.publish(ledger.stream("a", 1, ledger.Booked(partner="p", amount=1)), queue=0)
    topic.publish(ledger.stream("a", 2, ledger.Booked(partner="p", amount=1)), queue=1)
    _, headers, body = topic.bodies[1][0]
    topic.bodies[1][0] = ("", headers, body)
    plan = make_plan("accounts", topic.slices())
    assert [one["key"] for one in brought(plan).to_pylist() if one["kind"] == STREAM] == ["a", "a"]


def test_aggregates_are_whole_when_another_key_comes() -> None:
    def batch(keys: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": list(keys)})

    cut = whole_aggregates(iter([batch("aab"), batch("b"), batch("bbb"), batch("c"), batch("cd")]))
    found = [None if one is None else "".join(one["key"].to_pylist()) for one in cut]
    assert found == ["aa", None, "b", "b", "bbb", None, "c", "c", None, "d", None]
    assert list(whole_aggregates(iter([]))) == []


def test_one_message_outside_its_keys_queue_is_found(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        topic.publish(ledger.stream(key, 1, ledger.Ended()), queue=queue_for_key(key, 2))
    topic.publish(ledger.rejection("k0"), queue=1 - queue_for_key("k0", 2))
    plan = make_plan("accounts", topic.slices())
    assert list(find_moved(2, plan, numbers(plan))) == []
    # As if a third queue had been added by now.
    assert list(find_moved(3, plan, numbers(plan)))
    topic.publish(ledger.stream("k7", 2, ledger.Ended()), queue=1 - queue_for_key("k7", 2))
    plan = make_plan("accounts", topic.slices())
    ((record,),) = (batch.to_pylist() for batch in find_moved(2, plan, numbers(plan)))
    assert record["key"] == "k7"
