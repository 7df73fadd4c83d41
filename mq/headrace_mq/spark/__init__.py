"""
Topics as a Spark data source: `spark.read.format("headrace")`.

Used by a Spark session, which plans and runs the reading. Uses the blocking client, which fetches
batches over TCP. It never looks into a message body.

    from headrace_mq.spark import register

    register(spark)
    frame = spark.read.format("headrace").options(broker="127.0.0.1:9876", topic="orders").load()
"""

from importlib.util import find_spec

from headrace_mq.errors import MessageQueueError

if not all(map(find_spec, ("pyspark", "pyarrow"))):
    raise MessageQueueError(
        "reading topics with Spark needs PySpark and PyArrow: pip install 'headrace[spark]'"
    )

from headrace_mq.spark.lag import lag
from headrace_mq.spark.source import (
    HeadraceDataSource,
    capture_offsets,
    register,
)

__all__ = ["HeadraceDataSource", "capture_offsets", "lag", "register"]
