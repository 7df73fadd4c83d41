"""
What failed in Spark, as one sentence that says what to do; and where the rest of it is kept.

    an exception of two languages ─▶ the line that names the reason ─▶ what a person can do about it

Used by everything that runs Spark; knows how Spark words its errors. Pure, except `keep_trace`.
"""

import os
import re
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from headrace.errors import SparkUnreachable

__all__ = [
    "GONE",
    "SPARK_ERRORS",
    "keep_trace",
    "raised_in",
    "reason_of",
    "session_lost",
    "worker_trace",
]

# What a call raises when Spark itself says that something failed.
SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)

# What a call raises when the Java process has ended.
GONE: Final = (Py4JNetworkError, ConnectionError)

# The line of a Python traceback that names the exception.
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*: ")
_OURS: Final = re.compile(r"headrace(?:_mq)?\.[\w.]+: ")
_TRACE_BEGIN: Final = "Traceback (most recent call last):"

# What Spark says, anywhere in its error, and what that means; the first that is found counts.
_MEANINGS: Final = (
    (
        re.compile(r"No module named '([^'.]+)"),
        ("executors cannot import {found}: install it on each of them, or send it along with --conf"
        " spark.submit.pyFiles=headrace.zip,app.zip, which are Headrace's wheel and your code as archives"),
    ),
    (
        re.compile(r"java\.lang\.OutOfMemoryError|OutOfDirectMemoryError"),
        ("Java ran out of memory: give it more, with --conf spark.executor.memory=4g, and on one machine"
        " spark.driver.memory=4g"),
    ),
    (
        re.compile(r"Python worker exited unexpectedly|\bMemoryError\b|exit(?:ed with)? code 137"),
        ("a Python worker died, most likely because its memory was not enough: give executors more, with"
        " --conf spark.executor.memoryOverhead=2g, or fewer tasks at a time, with spark.executor.cores"),
    ),
    (
        re.compile(r"Master removed our application|All masters are unresponsive"),
        ("the cluster ended the application: its executors could not start, or no master is left; look at"
        " the workers' logs, and check spark.pyspark.python, spark.executor.memory and spark.driver.host"),
    ),
    (
        re.compile(r"ExecutorLostFailure|Max number of executor failures"),
        ("executors were lost again and again, most likely because their memory was not enough: give them"
        " more, with --conf spark.executor.memory=4g and spark.executor.memoryOverhead=2g"),
    ),
    (
        re.compile(r"SparkContext was shut down|stopped SparkContext|SparkContext has been shutdown"),
        "the Spark session ended while the job ran: the cluster or another part of this program stopped it",
    ),
    (
        re.compile(r"Could not parse Master URL"),
        "Spark does not know this master: use spark://HOST:7077, local[4], or one of another cluster manager",
    ),
    (
        re.compile(r"Cannot run program \"([^\"]+)\""),
        "executors cannot run {found}: name a Python that they have, with --conf spark.pyspark.python=PATH",
    ),
)  # fmt: skip


def raised_in(error: BaseException) -> str:
    """Returns the last line of a Python worker's traceback: the exception and its sentence."""
    # A streaming query tells of its plan and its offsets behind the error.
    told = str(error).partition("=== Streaming Query ===")[0].partition("JVM stacktrace:")[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line) and not line.startswith("SQLSTATE:")]
    return raised[-1] if raised else next(iter(lines), type(error).__name__)


def reason_of(error: BaseException) -> str:
    """Returns why a job or a start of Spark failed: a sentence of ours as it is, else what Spark means."""
    raised = raised_in(error)
    if _OURS.match(raised):
        return _OURS.sub("", raised, count=1)
    for words, meaning in _MEANINGS:
        if found := words.search(str(error)):
            return meaning.format(found=found[1] if found.groups() else "")
    return raised


def session_lost(error: BaseException) -> SparkUnreachable:
    """Returns the error for a session whose Java process, or whose server, is gone."""
    return SparkUnreachable(
        f"the Spark session is gone ({raised_in(error)}): its Java process or its server has ended; look"
        " whether it ran out of memory, and run the command again"
    )


def worker_trace(error: BaseException) -> str:
    """Returns a Python worker's traceback, without Java's, if what it raised is no sentence of ours."""
    for each in _chain(error):
        told = str(each)
        if not isinstance(each, PySparkException) or _TRACE_BEGIN not in told:
            continue
        known = any(words.search(told) for words, _ in _MEANINGS)
        if known or _OURS.match(raised_in(each)):
            return ""
        begin = told.index(_TRACE_BEGIN)
        end = told.find(raised_in(each), begin)
        return told[begin:end] + raised_in(each)
    return ""


def keep_trace(error: BaseException) -> Path | None:
    """Writes everything that Spark said of an error into a file; None: Spark said nothing of it."""
    if not any(isinstance(each, PySparkException | Py4JError) for each in _chain(error)):
        return None
    descriptor, name = tempfile.mkstemp(prefix="headrace-spark-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    return Path(name)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
