"""What becomes of a task's last records, and that workers load no more for it than they need."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.spark.executor.fold import RECORD_SCHEMA, ROW, Record, records_to_arrow
from headrace.spark.result import output as ending
from headrace.spark.result.output import Ending
from headrace.spark.result.parts import PIECE_SCHEMA

BATCH = records_to_arrow([Record.known(ROW, "a", data=b"1")])


def test_what_nobody_keeps_is_passed_on(make_plan: Any) -> None:
    own = Ending(plan=make_plan("accounts", ()))
    assert own.schema == RECORD_SCHEMA
    assert list(own.run(iter([BATCH]))) == [BATCH]


def test_pieces_are_named_for_the_task_whatever_the_attempt(
    make_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = SimpleNamespace(partitionId=lambda: 7, attemptNumber=lambda: 1)
    monkeypatch.setattr(ending, "TaskContext", SimpleNamespace(get=lambda: task))
    own = Ending(plan=make_plan("accounts", ()), pieces=True)
    assert own.schema == PIECE_SCHEMA
    (piece,) = (one for batch in own.run(iter([BATCH])) for one in batch.to_pylist())
    assert (piece["task"], piece["turn"]) == (7, 0)


def test_workers_load_no_database_for_rows_that_they_do_not_copy() -> None:
    program = (
        "import sys, headrace.spark.result.output, headrace.spark.executor.slices, headrace.spark.progress.queues\n"
        "print('sqlalchemy' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"
