"""`format("headrace")` of a broker with a login: driver and executors read the password's file themselves."""

import asyncio
import io
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.spark.source import register


def test_spark_writes_and_reads_what_its_user_may_and_no_plan_has_the_password(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("pencil-of-spark\n")
    file.chmod(0o600)
    add_user(tmp_path / "data", "root", SecretStr("pencil-of-spark"), admin=True)
    register(spark)
    command = [
        sys.executable, "-m", "headrace", "broker", "--login", "--data", str(tmp_path / "data"), "--port", "0",
        "--segment-size", "1MiB",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            address = broker.stdout.readline().strip().rpartition(" ")[2]
            login = f"tcp://{address}?password_file={file}&user="
            asyncio.run(let_in(f"{login}root"))
            options = {"broker": f"{login}spark"}
            rows = spark.range(100).selectExpr(
                "'orders' AS topic", "string(id) AS key", "encode('tea', 'utf-8') AS body"
            )
            rows.write.format("headrace").options(**options).mode("append").save()
            read = spark.read.format("headrace").options(**options, topic="orders").load()
            assert read.count() == 100
            shown = io.StringIO()
            with redirect_stdout(shown):
                read.explain(extended=True)
            assert "pencil" not in shown.getvalue() + str(read.schema)
            with pytest.raises(Exception, match="may not read topic:bills"):
                spark.read.format("headrace").options(**options, topic="bills").load().count()
        finally:
            broker.terminate()


async def let_in(address: str) -> None:
    async with AdminClient(address) as admin:
        await admin.add_user("spark", SecretStr("pencil-of-spark"))
        for action in ("publish", "create", "consume"):
            await admin.set_rule("spark", action, "topic:orders", allows=True)
