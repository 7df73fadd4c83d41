"""`format("headrace")` over TLS: the driver plans, and executors read and write, with the files of the address."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace_mq.spark.source import register


def test_a_topic_is_written_and_read_over_tls_with_certificates_on_both_sides(
    spark: SparkSession, tmp_path: Path, authority: Any
) -> None:
    ca = authority.write(tmp_path)
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    own, own_key = authority.issue(tmp_path, common_name="spark", file="client")
    register(spark)
    command = [
        sys.executable, "-m", "headrace", "broker", "--data", str(tmp_path / "data"), "--port", "0",
        "--segment-size", "1MiB", "--tls-certificate", str(certificate), "--tls-key", str(key),
        "--tls-client-ca", str(ca),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            address = broker.stdout.readline().strip().rpartition(" ")[2]
            options = {"broker": f"tls://{address}?ca={ca}&certificate={own}&key={own_key}"}
            rows = spark.range(1_000).selectExpr(
                "'orders' AS topic",
                "string(id) AS key",
                "encode(repeat('x', 200), 'utf-8') AS body",
            )
            rows.write.format("headrace").options(**options).mode("append").save()
            assert count(spark, options) == 1_000
            with pytest.raises(Exception, match="asks for a client's certificate"):
                count(spark, {"broker": f"tls://{address}?ca={ca}"})
        finally:
            broker.terminate()


def count(spark: SparkSession, options: dict[str, str]) -> int:
    read = spark.read.format("headrace").options(**options, topic="orders").load()
    return read.where("length(body) = 200").count()
