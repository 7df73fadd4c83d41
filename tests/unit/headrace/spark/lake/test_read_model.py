"""What is folded goes into the lake and is looked up there again, with versions of the right time."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headrace.spark.job import Folded
from headrace.spark.lake.delta import LakeTable
from headrace.spark.lake.increment import Increment
from headrace.spark.lake.read_model import _LakeRows
from headrace.spark.rows import RowCodec


def lake(ledger: Any, path: Path) -> _LakeRows:
    spark: Any = None
    tables = LakeTable(str(path)), LakeTable(str(path / "_versions"))
    return _LakeRows(spark, ledger.accounts, *tables)


def increment(plan: Any, end: int) -> Increment:
    return Increment(plan=plan, topic="ledger.events", identity="", start={0: 0}, end={0: end})


def test_rows_and_versions_are_found_as_they_were_written(
    ledger: Any, make_plan: Any, tmp_path: Path
) -> None:
    codec: RowCodec[Any] = RowCodec(ledger.accounts)
    made = {
        key: ledger.Account(
            account_id=key, balance=1, bookings=2, rate=Decimal("1.25"), booked_on=date(2026, 1, 31),
            booked_at=datetime(2026, 1, 31, 12, 0, 0, 7, UTC), note=None,
        )
        for key in ("a", "b'")
    }  # fmt: skip

    def folded(deleted: list[str], **versions: int) -> Folded:
        rows = pa.chunked_array([[codec.encode(row) for row in made.values()]], pa.binary())
        return Folded(rows=rows, deleted=deleted, versions=versions)

    plan = make_plan("accounts", ())
    assert lake(ledger, tmp_path).write(folded([], a=2, b=1), increment(plan, 3)) == 2
    known = lake(ledger, tmp_path)._known(increment(plan, 9))
    assert {record.key: codec.row(record.data) for record in known.rows(["a", "b'", "c"])} == made
    assert {record.key: record.number for record in known.versions(["a", "c"])} == {"a": 2}

    # A run that ends behind its versions: they are ahead of the rows, and not believed.
    halves = lake(ledger, tmp_path)
    ahead = pa.table(
        [["a"], [7]], schema=pa.schema({"aggregate_id": pa.string(), "version": "int64"})
    )
    halves.versions.merge(ahead, [], "aggregate_id", ("ledger.events", ""), {0: 5})
    known = lake(ledger, tmp_path)._known(increment(plan, 9))
    assert [record.number for record in known.versions(["a"])] == [2]

    del made["a"]
    lake(ledger, tmp_path).write(folded(["a"], a=8), increment(plan, 9))
    known = lake(ledger, tmp_path)._known(increment(plan, 9))
    assert [record.key for record in known.rows(["a", "b'"])] == ["b'"]
    assert {record.key: record.number for record in known.versions("ab")} == {"a": 8, "b": 1}
    assert DeltaTable(str(tmp_path)).to_pyarrow_table()["account_id"].to_pylist() == ["b'"]
