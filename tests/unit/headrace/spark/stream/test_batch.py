"""What a micro-batch says of itself, with a frame that answers from a list."""

from typing import Any

import pyarrow as pa

from headrace.spark.stream.batch import MicroBatch

NOON = 1_769_860_800_000


class Frame:
    """Notes what it is asked, and answers with rows that were put in."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.asked: list[str] = []

    def where(self, condition: str) -> "Frame":
        self.asked.append(condition)
        return self

    def selectExpr(self, *columns: str) -> "Frame":  # noqa: N802 - PySpark's spelling
        self.asked.extend(columns)
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 - PySpark's spelling
        return pa.Table.from_pylist(self.rows)


def message(queue: int, offset: int, moment: int, kind: str = "events") -> dict[str, Any]:
    return {
        "topic": "t", "queue_id": queue, "offset": offset, "key": f"k{queue}{offset}",
        "body": b"%d" % offset, "kind": kind, "moment": NOON + moment,
    }  # fmt: skip


def test_messages_come_as_the_broker_stored_them_each_queue_in_its_order() -> None:
    # The clock was set back between the first and the second record of queue 0.
    rows = [message(0, 8, 3), message(1, 4, 6), message(0, 7, 5), message(1, 3, 4, "rejection")]
    found = MicroBatch(Frame(rows)).messages()  # type: ignore[arg-type]  # answers what a frame would
    assert [(one.queue, one.offset) for one in found] == [
        (("t", 1), 3), (("t", 0), 7), (("t", 0), 8), (("t", 1), 4),
    ]  # fmt: skip
    assert [one.headers["kind"] for one in found] == ["rejection", "events", "events", "events"]
    assert (found[1].key, found[1].body) == ("k07", b"7")


def test_what_stands_before_the_offsets_is_left_out() -> None:
    frame = Frame([])
    batch = MicroBatch(frame)  # type: ignore[arg-type]  # notes the condition
    assert batch.after({}) is batch
    batch.after({("t", 0): 5, ("t", 3): 9})
    assert frame.asked == ["(queue_id <> 0 or offset >= 5) and (queue_id <> 3 or offset >= 9)"]


def test_streams_leave_rejections_out_and_have_the_columns_of_a_record() -> None:
    frame = Frame([])
    MicroBatch(frame).streams()  # type: ignore[arg-type]  # notes the columns
    condition, *columns = frame.asked
    assert condition == "headers['kind'] is distinct from 'rejection'"
    names = [column.rpartition(" ")[2] for column in columns]
    assert names == ["kind", "key", "moment", "queue", "offset", "turn", "number", "data"]
