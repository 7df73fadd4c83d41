"""A session without Java in this process is refused; with Java, see the tests with Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.spark.lake.hadoop import HadoopFolder


def test_a_session_of_spark_connect_is_told_what_to_use() -> None:
    connect: Any = SimpleNamespace()
    with pytest.raises(ProjectionError, match="use format='delta', or run it where the Connect"):
        HadoopFolder(connect, "s3a://lake/events")
