"""A rebuild's report has what its job counted, and how exported files were read."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from headrace.rebuild.switch import RebuildOutcome
from headrace.spark.archive import ArchiveFile
from headrace.spark.driver.exported import Exported
from headrace.spark.driver.report import queue_name, report_of
from headrace.spark.job import Folded
from headrace_mq.message import QueueRef
from headrace_mq.spark.offsets import QueueSlice

QUEUE = QueueRef("t.events", 3)


def report(**named: Any) -> Any:
    folded = Folded(
        rows=pa.chunked_array([], pa.binary()), deleted=[], versions={},
        counts=Counter(events=40, duplicates=2),
        queues={"t.events/3": {"foreign": 4}},
    )  # fmt: skip
    shadow: Any = SimpleNamespace(projection=SimpleNamespace(name="sums"), generation=2)
    means: Any = SimpleNamespace(foreign=1, left_out=SimpleNamespace(sentences=("one",)))
    outcome = RebuildOutcome(offsets={("t.events", 3): 12})
    slices = [QueueSlice(queue=QUEUE, start=2, end=12)]
    seconds = {"fold": 4.0}
    return report_of(shadow, folded, outcome, means, slices=slices, seconds=seconds, **named)


def test_counts_offsets_and_what_was_passed_over_are_told() -> None:
    made = report(exported=None)
    assert (made.events, made.duplicates, made.gaps, made.events_per_second) == (40, 2, 0, 10.0)
    assert (made.foreign, made.left_out) == (5, ("one",))
    assert (made.start_offsets, made.end_offsets) == ({"t.events/3": 2}, {"t.events/3": 12})
    assert made.caught_up_offsets == {queue_name(QUEUE): 12}
    assert (made.archived, made.exported) == (0, "")


def test_what_came_from_files_is_told() -> None:
    messages = (ArchiveFile(path="/x", queue_id=3, start=0, end=9),)
    exported = Exported(folder=Path(), parts=(), messages=messages, why="there are few")
    made = report(exported=exported)
    assert (made.archived, made.exported) == (7, "messages: there are few")
