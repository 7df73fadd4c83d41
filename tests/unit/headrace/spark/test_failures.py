"""What Spark says in pages becomes a sentence that says what to do."""

import re
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from headrace.errors import ProjectionError, SparkUnreachable
from headrace.spark.failures import keep_trace, raised_in, reason_of, session_lost, worker_trace

WORKER = """[PYTHON_EXCEPTION] Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times: \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
  File "fold.py", line 7, in fold
    rows["nope"]
{raised}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
\t... 1 more SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.SparkException: Job aborted: Traceback
\tat org.apache.spark.scheduler.DAGScheduler.x(DAGScheduler.scala:1)
"""


def spark_error(raised: str) -> PySparkException:
    return PySparkException(WORKER.format(raised=raised))


def test_a_sentence_of_ours_is_told_as_it_is() -> None:
    error = spark_error("headrace_mq.errors.ConnectionLost: no broker answers at q:1 (refused)")
    assert reason_of(error) == "no broker answers at q:1 (refused)"
    assert raised_in(error).startswith("headrace_mq.errors.ConnectionLost: ")


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ("ModuleNotFoundError: No module named 'headrace'", "cannot import headrace: install .*pyFiles"),
        ("ModuleNotFoundError: No module named 'shop.orders'", "cannot import shop: .*app.zip"),
        ("java.lang.OutOfMemoryError: Java heap space", "Java ran out of memory.*executor.memory=4g"),
        ("Python worker exited unexpectedly (crashed)", "a Python worker died.*memoryOverhead"),
        ("Reason: Command exited with code 137", "a Python worker died"),
        ("Master removed our application: FAILED", "executors could not start.*workers' logs"),
        ("ExecutorLostFailure (executor 0 exited)", "executors were lost again and again"),
        ("Job 3 cancelled because SparkContext was shut down", "the Spark session ended"),
        ("SparkException: Could not parse Master URL: 'x'", "use spark://HOST:7077"),
        ('IOException: Cannot run program "python9": error=2', "cannot run python9: name a Python"),
        ("KeyError: 'nope'", "^KeyError: 'nope'$"),
    ],
)  # fmt: skip
def test_an_error_of_the_cluster_says_what_to_do(told: str, sentence: str) -> None:
    assert re.search(sentence, reason_of(spark_error(told)))


def test_a_defect_is_shown_with_the_workers_traceback_alone() -> None:
    error: Any = ProjectionError("the job failed")
    error.__cause__ = spark_error("KeyError: 'nope'")
    trace = worker_trace(error)
    assert trace.startswith("Traceback (most recent call last):\n  File")
    assert trace.endswith("KeyError: 'nope'")
    assert "PythonRunner.scala" not in trace
    for known in ("headrace.errors.ProjectionError: x", "ModuleNotFoundError: No module named 'x'"):
        assert worker_trace(spark_error(known)) == ""
    assert worker_trace(ProjectionError("no Spark in it")) == ""


def test_all_that_spark_said_is_kept_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    error: Any = ProjectionError("the job failed")
    assert keep_trace(error) is None
    error.__cause__ = spark_error("KeyError: 'nope'")
    path = keep_trace(error)
    assert path is not None
    kept = path.read_text(encoding="utf-8")
    assert "ProjectionError: the job failed" in kept
    assert "PythonRunner.scala" in kept


def test_a_session_that_is_gone_is_no_database_that_is_gone() -> None:
    error = session_lost(Py4JNetworkError("Answer from Java side is empty"))
    assert isinstance(error, SparkUnreachable)
    assert "the Spark session is gone (Answer from Java side is empty)" in str(error)
