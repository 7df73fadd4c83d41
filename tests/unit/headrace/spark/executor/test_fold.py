"""What executors do, step by step: reading, gating and folding, and what they send on."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.rebuild import left_out as left_out_module
from headrace.spark.executor import fold as fold_module
from headrace.spark.executor.aggregates import fold_aggregates, route_aggregates
from headrace.spark.executor.fold import (
    BASE,
    DELETED,
    MISSING,
    RECORD_ARROW_SCHEMA,
    ROW,
    STREAM,
    TALLY,
    TOUCH,
    UNREAD,
    VERSION,
    Record,
    batched,
    fold_keys,
    read_slices,
    records_to_arrow,
    route_slices,
)
from headrace.spark.executor.slices import fold_slices
from headrace.spark.job import read_result
from headrace.spark.rows import RowCodec

ORDER = [(name, "ascending") for name in ("key", "moment", "queue", "offset", "turn")]


def places(count: int) -> Iterator[pa.RecordBatch]:
    """What Spark hands to the first step: places in the plan's list of slices."""
    return iter([pa.RecordBatch.from_pydict({"id": [place]}) for place in range(count)])


def shuffled(*records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """What Spark hands to a later step: sorted, in batches that cut through keys."""
    table = pa.Table.from_batches(records, schema=RECORD_ARROW_SCHEMA)
    return iter(table.sort_by(ORDER).to_batches(max_chunksize=2))


def told(batches: Any) -> dict[str, dict[str, Any]]:
    """Sorts records by kind, then key, to their number or data; tallies are added up."""
    found: dict[str, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    for batch in batches:
        for record in batch.to_pylist():
            if record["kind"] == TALLY:
                counts[record["key"]] += record["number"]
            else:
                found.setdefault(record["kind"], {})[record["key"]] = (
                    record["number"] if record["kind"] == VERSION else record["data"]
                )
    return found | {TALLY: dict(counts)}


@pytest.fixture
def history(ledger: Any) -> list[EventStream]:
    """Two aggregates, one of which ends."""
    return [
        ledger.stream("a", 1, ledger.Booked(partner="p", amount=5)),
        ledger.stream("b", 1, ledger.Booked(partner="p", amount=7), ledger.Noted(text="x")),
        ledger.stream("a", 2, ledger.Booked(partner="q", amount=-1)),
        ledger.stream("b", 2, ledger.Ended()),
    ]


def test_slices_are_folded_whole_into_rows_versions_and_tallies(
    ledger: Any, topic: Any, make_plan: Any, history: list[EventStream]
) -> None:
    topic.publish(*history, ledger.rejection("a"))
    plan = make_plan("accounts", topic.slices())
    made = told(fold_slices(plan, places(len(plan.slices))))
    codec = RowCodec(ledger.accounts)
    wanted = fold_streams(ledger.accounts, {}, history)
    assert {key: codec.row(data) for key, data in made[ROW].items()} == {"a": wanted["a"]}
    assert list(made[DELETED]) == ["b"]
    assert made[VERSION] == {"a": 2, "b": 2}
    assert made[TALLY] == {"events": 5}


def test_duplicates_and_early_versions_are_counted_and_change_nothing(
    ledger: Any, topic: Any, make_plan: Any, history: list[EventStream]
) -> None:
    a1, _, a2, _ = history
    topic.publish(a2, a1, a2, a1)
    plan = make_plan("accounts", topic.slices())
    made = told(fold_slices(plan, places(len(plan.slices))))
    assert RowCodec(ledger.accounts).row(made[ROW]["a"]).balance == 5 * 3 - 1
    assert made[TALLY] == {"events": 2, "duplicates": 2, "gaps": 1}


def test_what_is_missing_is_said(ledger: Any, topic: Any, make_plan: Any) -> None:
    topic.publish(ledger.stream("a", 3, ledger.Ended()))
    plan = make_plan("accounts", topic.slices())
    made = told(fold_slices(plan, places(1)))
    assert made[MISSING] == {"a": b"a versions 1 to 2"}


@pytest.fixture
def spoiled(ledger: Any, topic: Any) -> list[EventStream]:
    """Puts an account whose second stream of three lacks a field beside a sound one; returns what counts."""
    a1, a2, a3, b1 = (
        ledger.stream(key, version, ledger.Booked(partner=key, amount=version))
        for key, version in (("a", 1), ("a", 2), ("a", 3), ("b", 1))
    )
    topic.publish(a1, a2, a3, b1, queue=1)
    key, headers, body = topic.bodies[1][1]
    topic.bodies[1][1] = (key, headers, body.replace(b'"amount"', b'"lost"'))
    return [a1, b1]


@pytest.mark.parametrize("step", [fold_slices, route_slices])
def test_an_aggregate_is_left_out_from_a_stream_on_that_does_not_decode(
    step: Any, ledger: Any, make_plan: Any, topic: Any, spoiled: list[EventStream]
) -> None:
    made = told(step(make_plan("accounts", topic.slices()), places(1)))
    assert b"at ledger.events/1 offset 1 " in made[UNREAD]["a"]
    assert b"does not decode" in made[UNREAD]["a"]
    assert made[VERSION] == {"a": 1, "b": 1}
    assert made[TALLY] == {"events": 2}
    assert MISSING not in made
    if step is fold_slices:
        codec = RowCodec(ledger.accounts)
        rows = {key: codec.row(data) for key, data in made[ROW].items()}
        assert rows == fold_streams(ledger.accounts, {}, spoiled)


@pytest.mark.parametrize("step", [fold_aggregates, route_aggregates])
def test_a_tail_leaves_it_out_as_well(
    step: Any, make_plan: Any, topic: Any, spoiled: list[EventStream]
) -> None:
    plan = make_plan("accounts", topic.slices())
    made = told(step(plan, shuffled(*read_slices(plan, places(1)))))
    assert b"(aggregate a) does not decode" in made[UNREAD]["a"]
    assert made[VERSION] == {"a": 1, "b": 1}
    found = read_result(
        plan, pa.Table.from_batches(step(plan, shuffled(*read_slices(plan, places(1)))))
    )
    ((key, offset, sentence),) = found.left_out
    assert (key, offset, "does not decode" in sentence) == ("a", 1, True)
    with pytest.raises(ProjectionError, match="projection accounts: the event message at"):
        found.require_all("accounts")


@pytest.mark.parametrize("step", [fold_slices, route_slices])
def test_too_many_that_do_not_decode_end_the_fold(
    step: Any, make_plan: Any, topic: Any, spoiled: list[EventStream],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(left_out_module, "LEFT_OUT_MAX", 0)
    with pytest.raises(ProjectionError, match=r"at ledger\.events/1 offset 1 .*does not decode"):
        list(step(make_plan("accounts", topic.slices()), places(1)))


def test_a_fold_that_fails_names_its_event(ledger: Any, topic: Any, make_plan: Any) -> None:
    topic.publish(ledger.stream("a", 1, ledger.Noted(text="fail")))
    plan = make_plan("accounts", topic.slices())
    with pytest.raises(ProjectionError, match="cannot fold Noted a/1/1: RuntimeError: this note"):
        list(fold_slices(plan, places(1)))


def test_routing_sends_each_event_to_the_key_it_touches(
    ledger: Any, topic: Any, make_plan: Any, history: list[EventStream]
) -> None:
    topic.publish(*history, queue=0)
    plan = make_plan("partners", topic.slices())
    batches = list(route_slices(plan, places(1)))
    touches = [one for batch in batches for one in batch.to_pylist() if one["kind"] == TOUCH]
    assert [(one["key"], one["number"] >> 16, one["offset"]) for one in touches] == [
        ("p", 1, 0), ("p", 1, 1), ("q", 1, 2),
    ]  # fmt: skip
    moments = [one["moment"] for one in touches]
    assert moments == sorted(moments)
    made = told(fold_keys(plan, shuffled(*batches)))
    codec = RowCodec(ledger.partners)
    assert {key: codec.row(data).total for key, data in made[ROW].items()} == {"p": 12, "q": -1}
    assert made[VERSION] == {"a": 2, "b": 2}
    assert made[TALLY] == {"events": 5}


def test_what_events_send_to_keys_grows_with_their_number_however_long_streams_are(
    ledger: Any, topic: Any, make_plan: Any
) -> None:
    def sent(events: int) -> int:
        for queue in topic.bodies.values():
            queue.clear()
        for number in range(8):
            booked = [ledger.Booked(partner=f"p{at}", amount=at) for at in range(events)]
            topic.publish(ledger.stream(f"a{number}", 1, *booked))
        plan = make_plan("partners", topic.slices())
        batches = list(route_slices(plan, places(len(plan.slices))))
        touches = sum(batch["kind"].to_pylist().count(TOUCH) for batch in batches)
        assert touches == 8 * events
        return sum(batch.nbytes for batch in batches)

    assert sent(2_000) < 8.5 * sent(250)


def test_a_busy_key_is_folded_over_many_batches(ledger: Any, topic: Any, make_plan: Any) -> None:
    amounts = range(1, 301)
    booked = [ledger.Booked(partner="p", amount=amount) for amount in amounts]
    topic.publish(*(ledger.stream("a", at, each) for at, each in enumerate(booked, start=1)))
    plan = make_plan("partners", topic.slices())
    made = told(fold_keys(plan, shuffled(*route_slices(plan, places(1)))))
    assert RowCodec(ledger.partners).row(made[ROW]["p"]).total == sum(amounts)


def test_a_tail_is_read_undecoded_and_folded_onto_base_rows_and_versions(
    ledger: Any, topic: Any, make_plan: Any, history: list[EventStream]
) -> None:
    codec = RowCodec(ledger.accounts)
    base = fold_streams(ledger.accounts, {}, history[:2])
    known = records_to_arrow(
        [
            *(Record.known(BASE, key, data=codec.encode(row)) for key, row in base.items()),
            *(Record.known(VERSION, key, number=1) for key in base),
        ]
    )
    topic.publish(history[0], *history[2:], ledger.rejection("b"))
    plan = make_plan("accounts", topic.slices())
    streams = list(read_slices(plan, places(len(plan.slices))))
    assert {kind for batch in streams for kind in batch["kind"].to_pylist()} == {STREAM}
    made = told(fold_aggregates(plan, shuffled(known, *streams)))
    wanted = fold_streams(ledger.accounts, {}, history)
    assert codec.row(made[ROW]["a"]) == wanted["a"]
    assert list(made[DELETED]) == ["b"]
    assert made[VERSION] == {"a": 2, "b": 2}
    assert made[TALLY] == {"events": 2, "duplicates": 1}


def test_an_aggregate_without_a_tail_is_not_sent_back(
    ledger: Any, make_plan: Any, history: list[EventStream]
) -> None:
    codec = RowCodec(ledger.accounts)
    base = fold_streams(ledger.accounts, {}, history[:1])
    known = records_to_arrow(
        [
            Record.known(BASE, "a", data=codec.encode(base["a"])),
            Record.known(VERSION, "a", number=1),
        ]
    )
    assert list(fold_aggregates(make_plan("accounts", ()), shuffled(known))) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 30),
    doubled=st.integers(0, 6),
)
def test_a_tail_of_any_order_onto_any_base_is_the_whole_history_folded(
    ledger: Any, topic: Any, make_plan: Any, lengths: list[int], seed: int, doubled: int
) -> None:
    chance = random.Random(seed)
    whole: list[EventStream] = []
    tail: list[EventStream] = []
    versions: dict[str, int] = {}
    for number, length in enumerate(lengths):
        aggregate_id = f"a{number}"
        own = [
            ledger.stream(
                aggregate_id,
                version,
                ledger.Booked(partner=chance.choice("pq"), amount=chance.randint(-5, 5)),
            )
            for version in range(1, length + 1)
        ]
        known = chance.randint(0, length)
        if known:
            versions[aggregate_id] = known
        whole += own
        tail += own[known:] + chance.choices(own, k=doubled)
    chance.shuffle(tail)
    before = [one for one in whole if (one.version or 0) <= versions.get(one.aggregate_id, 0)]
    for queue in topic.bodies:
        topic.bodies[queue].clear()
    topic.publish(*tail)
    for projection, name in ((ledger.accounts, "accounts"), (ledger.partners, "partners")):
        codec: RowCodec[Any] = RowCodec(projection)
        base = {key: row for key, row in fold_streams(projection, {}, before).items() if row}
        base_rows = [Record.known(BASE, key, data=codec.encode(row)) for key, row in base.items()]
        known_versions = [Record.known(VERSION, key, number=at) for key, at in versions.items()]
        plan = make_plan(name, topic.slices())
        streams = list(read_slices(plan, places(len(plan.slices))))
        if projection.keyed_by_aggregate:
            known_records = records_to_arrow(base_rows + known_versions)
            made = told(fold_aggregates(plan, shuffled(known_records, *streams)))
        else:
            routed = route_aggregates(plan, shuffled(records_to_arrow(known_versions), *streams))
            made = told(fold_keys(plan, shuffled(records_to_arrow(base_rows), *routed)))
        rows: dict[str, Any] = dict(base)
        rows |= {key: codec.row(data) for key, data in made.get(ROW, {}).items()}
        for key in made.get(DELETED, {}):
            rows.pop(key, None)
        wanted = {key: row for key, row in fold_streams(projection, {}, whole).items() if row}
        assert rows == wanted


@given(
    sizes=st.lists(st.integers(0, 40), max_size=60),
    bytes_max=st.integers(1, 100),
    records_max=st.integers(1, 10),
)
def test_batches_are_bounded_by_bytes_and_a_larger_record_goes_alone(
    sizes: list[int], bytes_max: int, records_max: int
) -> None:
    made = [Record.known(ROW, f"{n}", data=b"x" * size) for n, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fold_module, "BATCH_BYTES_MAX", bytes_max)
        patched.setattr(fold_module, "_BATCH_RECORDS", records_max)
        batches = [batch.to_pylist() for batch in batched(made[:7], made[7:])]
    for batch in batches:
        size = sum(len(one["key"]) + len(one["data"]) for one in batch)
        assert 1 <= len(batch) <= records_max
        assert size <= bytes_max or len(batch) == 1
    assert [one["key"] for batch in batches for one in batch] == [one.key for one in made]


def test_wide_rows_leave_a_fold_in_bounded_batches(
    ledger: Any, topic: Any, make_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_module, "BATCH_BYTES_MAX", 1 << 20)
    for number in range(100):
        booked = ledger.Booked(partner="p", amount=1)
        topic.publish(ledger.stream(f"a{number}", 1, booked, ledger.Noted(text="n" * 70_000)))
    plan = make_plan("accounts", topic.slices())
    made = list(fold_slices(plan, places(len(plan.slices))))
    assert sum(batch["kind"].to_pylist().count(ROW) for batch in made) == 100
    assert max(batch.nbytes for batch in made) < 1.1 * (1 << 20)


def test_an_executor_loads_no_database_driver_and_no_broker() -> None:
    program = (
        "import sys, headrace.spark.executor.fold;"
        "print([name for name in sys.modules if name.partition('.')[0] in"
        " {'sqlalchemy', 'asyncpg', 'aiosqlite', 'alembic', 'pandas'}"
        " or name.startswith(('headrace_mq.broker', 'headrace_mq.store'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
