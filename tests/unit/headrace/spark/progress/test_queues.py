"""Queues that were read are told while the job still runs."""

from typing import Any

from pyspark.errors import PySparkAttributeError

from headrace.spark.executor.fold import QUEUE, ROW, Record, records_to_arrow
from headrace.spark.progress.queues import Finished


def read(queue: str, messages: int) -> Any:
    return records_to_arrow([
        Record.known(ROW, "a"),
        Record.known(QUEUE, f"{queue} messages", number=messages),
        Record.known(QUEUE, f"{queue} bytes", number=messages * 100),
    ])  # fmt: skip


def test_each_queue_is_told_once_and_what_passes_stays_as_it_is(spark: Any) -> None:
    finished = Finished(spark, {"t/0": 7, "t/1": 5})
    batches = [read("t/0", 7), read("t/1", 5)]
    passing = finished.watch(iter(batches))
    assert next(passing) == batches[0]
    assert list(finished.news()) == [("t/0 folded", 5)]
    assert list(finished.news()) == []
    assert list(passing) == batches[1:]
    assert list(finished.news()) == [("t/1 folded", 0)]


def test_a_queue_in_pieces_is_told_when_the_last_of_them_was_read(spark: Any) -> None:
    finished = Finished(spark, {"t/0": 9, "t/1": 5}, {"t/0": 2, "t/1": 1})
    assert len(list(finished.watch(iter([read("t/0", 4), read("t/1", 5)])))) == 2
    assert list(finished.news()) == [("t/1 folded", 9)]
    assert len(list(finished.watch(iter([read("t/0", 5)])))) == 1
    assert list(finished.news()) == [("t/0 folded", 0)]


def test_where_spark_has_no_context_nothing_is_told_before_the_end() -> None:
    class Remote:
        @property
        def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
            raise PySparkAttributeError(
                errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "x"}
            )

    remote: Any = Remote()
    finished = Finished(remote, {"t/0": 7})
    batches = [read("t/0", 7)]
    assert list(finished.watch(iter(batches))) == batches
    assert list(finished.news()) == []
