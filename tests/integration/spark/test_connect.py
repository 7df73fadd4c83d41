"""A rebuild behind a real Spark Connect server, whose workers import what the client has sent."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from deltalake import DeltaTable

import headrace
import headrace_mq

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Asks a worker where its modules come from, and writes to the lake; then the command line, in the same
# session.
CLIENT = """
import sys
import pyarrow as pa
from headrace.cli import main
from headrace.cli.options import spark_settings
from headrace.spark.lake.events import write_events
from headrace.spark.lake.read_model import write_read_model
from headrace.spark.session import open_session

def places(batches):
    import headrace, headrace_mq, ledger_app
    for _ in batches:
        files = [module.__file__ for module in (headrace, headrace_mq, ledger_app)]
        yield pa.RecordBatch.from_pydict({"file": files})

lake, *options = sys.argv[1:]
settings = spark_settings([options[options.index("--conf") + 1]])
spark = open_session(remote=options[options.index("--remote") + 1], settings=settings)
for row in spark.range(0, 1, 1, 1).mapInArrow(places, "file string").toArrow().to_pylist():
    print(row["file"], flush=True)
known = dict(broker=options[options.index("--broker") + 1])
write_events(spark, "ledger_app:app", lake + "/events", format="delta", **known)
write_read_model(spark, "ledger_app:app", "accounts", lake + "/rows", **known)
sys.argv = ["headrace", *options]
main()
"""


def packed(path: Path, *sources: Path) -> Path:
    """Zips packages and modules, as a wheel does."""
    with ZipFile(path, "w") as archive:
        for source in sources:
            files = source.rglob("*") if source.is_dir() else [source]
            for file in files:
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(source.parent))
    return path


@pytest.mark.parametrize("read_models_url", ["postgresql"], indirect=True)
async def test_a_rebuild_behind_a_server_equals_live_with_the_code_that_was_sent(
    rows_of: Any, state_of: Any, connect_server: Any, broker: Any, ledger: Any, make_history: Any,
    publish: Any, catch_up_live: Any, read_models_url: str, child_environment: dict[str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    wheel = packed(
        tmp_path / "headrace.zip", Path(headrace.__file__).parent, Path(headrace_mq.__file__).parent
    )
    code = packed(tmp_path / "app.zip", Path(ledger.__file__))
    history = make_history(9, 3)
    await publish(history)
    await catch_up_live(read_models_url, ledger.accounts)
    live = await rows_of(read_models_url, ledger.accounts)
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, tmp_path / "lake", "projection", "rebuild", "accounts", "--engine", "spark",
        "--remote", connect_server.url, "--conf", f"spark.submit.pyFiles={wheel},{code}",
        "--app", "ledger_app:app", "--broker", broker.address, "--read-models", read_models_url,
        "--unsealed", "--json",
        env=child_environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert client.stdout is not None
        *files, told = (await client.stdout.read()).decode().splitlines()
        assert await client.wait() == 0
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    assert [file.partition(".zip/")[2] for file in files] == [
        "headrace/__init__.py", "headrace_mq/__init__.py", "ledger_app.py"
    ]  # fmt: skip
    report = json.loads(told)
    assert (report["switched"], report["mismatches"], report["compared"]) == (True, 0, len(live))
    assert (await state_of(read_models_url, ledger.accounts)).generation == report["generation"]
    assert await rows_of(read_models_url, ledger.accounts) == live
    events = DeltaTable(str(tmp_path / "lake" / "events")).to_pyarrow_table()
    assert len(events) == sum(len(one.events) for one in history)
    rows = DeltaTable(str(tmp_path / "lake" / "rows")).to_pyarrow_table().to_pylist()
    assert {row["account_id"]: ledger.accounts.shape.load(row) for row in rows} == live
