"""A large batch onto what is known, run by a Spark that is made of tables."""

import random
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.errors import PySparkException

from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.spark.executor.fold import BASE, STREAM, VERSION, EventPlace, Record, records_to_arrow
from headrace.spark.rows import RowCodec
from headrace.spark.stream.increment import fold_increment


class Stored:
    """Rows and versions in dictionaries; notes which were looked up."""

    def __init__(self, projection: Any, rows: dict[str, Any], versions: dict[str, int]) -> None:
        self._codec: RowCodec[Any] = RowCodec(projection)
        self._rows, self._versions = rows, versions
        self.looked_up: set[str] = set()

    def versions(self, aggregates: Iterable[str]) -> list[Record]:
        known = [key for key in aggregates if key in self._versions]
        return [Record.known(VERSION, key, number=self._versions[key]) for key in known]

    def rows(self, keys: Iterable[str]) -> list[Record]:
        wanted = list(keys)
        self.looked_up |= set(wanted)
        encode = self._codec.encode
        return [
            Record.known(BASE, key, data=encode(self._rows[key]))
            for key in wanted
            if key in self._rows
        ]


@pytest.fixture
def frame_of(ledger: Any, make_frame: Any) -> Any:
    """Makes the frame of a batch's streams, in a few partitions."""

    def make(streams: list[Any]) -> Any:
        records = [
            Record(STREAM, one.aggregate_id, EventPlace(place, 0, place), 0,
                   ledger.serializer.encode_stream(one))
            for place, one in enumerate(streams)
        ]  # fmt: skip
        return make_frame(records_to_arrow(records[0::2]), records_to_arrow(records[1::2]))

    return make


@pytest.mark.parametrize("name", ["accounts", "partners"])
@pytest.mark.parametrize("seed", range(5))
def test_a_batch_onto_stored_rows_makes_what_a_plain_loop_makes(
    name: str, seed: int, ledger: Any, topic: Any, make_plan: Any, frame_of: Any
) -> None:
    chance = random.Random(seed)
    whole = [
        ledger.stream(
            f"a{number}",
            version,
            ledger.Booked(partner=chance.choice("pqr"), amount=chance.randint(-3, 3)),
            *([ledger.Ended()] if chance.random() < 0.2 else []),
        )
        for version in range(1, 6)
        for number in range(6)
    ]
    before, tail = whole[:15], whole[15:]
    projection = ledger.app.projections[name]
    rows = {key: row for key, row in fold_streams(projection, {}, before).items() if row}
    versions = {one.aggregate_id: one.version for one in before}
    arrived = [*tail, *chance.choices(whole, k=5)]
    chance.shuffle(arrived)
    for one in whole:
        topic.publish(one)
    stored = Stored(projection, rows, versions)
    folded = fold_increment(
        frame_of(arrived),
        make_plan(name, topic.slices()),
        stored,
        keyed_by_aggregate=projection.keyed_by_aggregate,
    )
    codec: RowCodec[Any] = RowCodec(projection)
    for chunk in folded.row_chunks(2):
        rows |= {getattr(row, projection.key): row for row in map(codec.row, chunk)}
    for key in folded.deleted:
        rows.pop(key, None)
    assert rows == {key: row for key, row in fold_streams(projection, {}, whole).items() if row}
    assert versions | folded.versions == {one.aggregate_id: one.version for one in whole}
    assert folded.counts["events"] == sum(len(one.events) for one in tail)


def test_only_what_the_batch_touches_is_looked_up(
    ledger: Any, topic: Any, make_plan: Any, frame_of: Any
) -> None:
    streams = [ledger.stream("a", 1, ledger.Booked(partner="q", amount=1))]
    topic.publish(*streams)
    stored = Stored(ledger.partners, {"p": ledger.Partner(partner="p", total=1)}, {})
    plan = make_plan("partners", topic.slices())
    fold_increment(frame_of(streams), plan, stored, keyed_by_aggregate=False)
    assert stored.looked_up == {"q"}


def test_a_failure_of_spark_is_named(
    ledger: Any, make_plan: Any, frame_of: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [ledger.stream("a", 1, ledger.Ended())]
    topic.publish(*streams)
    frame = frame_of(streams)

    def fail(self: Any) -> None:
        raise PySparkException("the executor is gone")

    monkeypatch.setattr(type(frame), "toArrow", fail)
    stored = Stored(ledger.accounts, {}, {})
    plan = make_plan("accounts", topic.slices())
    with pytest.raises(ProjectionError, match="the Spark job failed: the executor is gone"):
        fold_increment(frame, plan, stored, keyed_by_aggregate=True)
