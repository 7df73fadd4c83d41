"""
An archive of the classes that Spark loads: a JVM of the suite maps it instead of reading some 15,000 from jars.

    pytest starts ─▶ one session in the background leaves the archive ─▶ JVMs that start later map it

Java's class data sharing (JEP 350). A JVM that finds no archive, or one of another Java, starts as ever.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["QUICK_JAVA", "SPARK_PYTHON", "SparkClasses", "java_options"]

# Spark's JVMs live for seconds here: the second compiler costs them more than half their start and
# gains nothing. Those of documents, demos and drills are started by what they run, so it goes
# through the environment.
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What the Pythons of Spark run first, those of drivers, executors and streams.
SPARK_PYTHON: Final = f'"-Dspark.executorEnv.PYTHONPATH={Path(__file__).with_name("spark_python")}"'
# A JVM says nothing of an archive that does not fit it: a test may read what it prints.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
# A session that does what most of them do.
_SESSION: Final = """
import os, sys
from pyspark import SparkContext
from headrace.spark.session import local_session
spark = local_session("classes", cores=1, driver_memory="512m")
frame = spark.range(0, 100, 1, 1).mapInArrow(lambda batches: batches, "id long")
frame.groupBy("id").count().toArrow()
spark.stop()
gateway = SparkContext._gateway
gateway.proc.stdin.close()
gateway.proc.wait()
# Only the whole file has the name that others look for.
os.rename(sys.argv[1], sys.argv[2])
"""


def java_options() -> str:
    """What a JVM is given that `spark-submit` does not start, such as an executor's: options of Java alone."""
    given = shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", QUICK_JAVA))
    return " ".join(each for each in given if not each.startswith("-D"))


class SparkClasses:
    """The archive of one run; made in the background, and deleted with its folder."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-classes-"))
        self._archive = self._folder / "spark.jsa"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> str:
        """What a JVM is given to use it."""
        return f"-Xshare:auto -XX:SharedArchiveFile={self._archive} {_QUIET}"

    def start(self) -> None:
        """Begins to make it; JVMs that start before it is there do without."""
        half = self._folder / "half.jsa"
        options = f"{QUICK_JAVA} {SPARK_PYTHON} -XX:ArchiveClassesAtExit={half} {_QUIET}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SESSION, half, self._archive],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"SPARK_SUBMIT_OPTS": options},
        )

    def close(self) -> None:
        """Ends what is under way, and deletes it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
