"""What can be known without Spark is said before Java starts, on the command line and in Python."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.shadow import Building
from headrace.stores.database.schema import upgrade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Each line that comes in is the arguments of a command, or of `rebuild`; each answer is a status and a sentence.
COMMANDS = """
import asyncio, contextlib, io, json, shlex, sys
from headrace.cli import main
from headrace.errors import HeadraceError
from headrace.spark.rebuild import rebuild
for line in sys.stdin:
    asked, said, status = json.loads(line), io.StringIO(), 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        if isinstance(asked, dict):
            try:
                asyncio.run(rebuild("ledger_app:app", "accounts", **asked))
            except HeadraceError as error:
                status = 2
                print(error)
        else:
            sys.argv = ["headrace", *asked]
            try:
                main()
            except SystemExit as ended:
                status = ended.code
    print(json.dumps([status, said.getvalue()]), flush=True)
"""


class Commands:
    """One process that runs command after command; its Java notes that it was called, and ends."""

    def __init__(self, process: asyncio.subprocess.Process, called: Path) -> None:
        self._process = process
        self.called = called

    async def run(self, asked: Any) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        status, said = json.loads(await self._process.stdout.readline())
        return status, said


@pytest.fixture
async def commands(child_environment: dict[str, str], tmp_path: Path) -> Any:
    """Commands in a process where JAVA_HOME is a program that leaves a note."""
    java, called = tmp_path / "java" / "bin" / "java", tmp_path / "called"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {called}\nexit 1\n")
    java.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMANDS, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env=child_environment | {"JAVA_HOME": str(tmp_path / "java"), "COLUMNS": "1000"},
        cwd=tmp_path,
    )  # fmt: skip
    yield Commands(process, called)
    assert process.stdin is not None
    process.stdin.close()
    await process.wait()


@pytest.fixture
async def rebuild(
    broker: Any, ledger: Any, make_history: Any, publish: Any, sqlite_url: str
) -> Callable[..., list[str]]:
    """The arguments of a rebuild for which everything is there."""
    await publish(make_history(3, 2))
    await upgrade(sqlite_url)

    def asked(*more: str, name: str = "accounts", read: str = sqlite_url) -> list[str]:
        return [
            "projection", "rebuild", name, "--engine", "spark", "--app", "ledger_app:app",
            "--unsealed", "--broker", broker.address, "--read-models", read, *more,
        ]  # fmt: skip

    return asked


async def test_mistakes_are_said_without_java(
    commands: Commands, rebuild: Any, broker: Any, sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    old = f"sqlite:///{tmp_path / 'old.db'}"
    await upgrade(old)
    with closing(sqlite3.connect(tmp_path / "old.db")) as database, database:
        database.execute("UPDATE headrace_schema SET version_num = '0001'")
    nothing = f"sqlite:///{tmp_path / 'none.db'}"
    away = ["--broker", "127.0.0.1:1,127.0.0.1:2"]
    followed = ["projection", "follow", "accounts", *rebuild()[5:]]
    for asked, sentence in (
        (rebuild(name="nothing"), "nothing"),
        (rebuild("--from-export", str(tmp_path / "missing")), "missing"),
        (rebuild("--from-export", str(tmp_path / "empty")), "empty"),
        (rebuild(read=old), "headrace db upgrade"),
        (rebuild(read="postgresql://nobody@127.0.0.1:1/none"), "database"),
        (rebuild(*away), "no broker answers at 127.0.0.1:1,127.0.0.1:2"),
        (rebuild(*away, "--only-keys", "a1"), "no broker answers"),
        (["projection", "rebuild", "accounts", "--engine", "spark", "--app", "ledger_app:app",
          "--event-store", nothing, "--broker", broker.address, "--read-models", sqlite_url],
         "headrace db upgrade"),
        (rebuild("--master", "spark://127.0.0.1:1"), "no Spark answers at spark://127.0.0.1:1"),
        ([*followed, "--read-models", old], "headrace db upgrade"),
        ({"broker": "127.0.0.1:1", "read_models_url": sqlite_url}, "no broker answers"),
        ({"broker": broker.address, "read_models_url": old}, "headrace db upgrade"),
        ({"broker": broker.address, "read_models_url": sqlite_url, "export": str(tmp_path)},
         "export"),
    ):  # fmt: skip
        status, said = await commands.run(asked)
        assert status == 2, (asked, said)
        assert sentence in said, (asked, said)
        assert "Traceback" not in said
        assert not commands.called.exists(), asked


async def test_a_second_rebuild_is_refused_without_java_and_one_that_may_run_starts_it(
    commands: Commands, rebuild: Any, ledger: Any, sqlite_url: str
) -> None:
    models = ReadModels(sqlite_url)
    try:
        await models.ensure(ledger.accounts)
        async with Building(models, ledger.accounts)._held("other"):
            shadow = await Building(models, ledger.accounts).begin(take_over=False)
            status, said = await commands.run(rebuild())
            assert (status, commands.called.exists()) == (2, False), said
            assert "has been rebuilding it since" in " ".join(said.split()), said
            await Building(models, ledger.accounts).give_up(shadow)
    finally:
        await models.aclose()

    # Where all is well it is Java's turn, so that the note would have been left.
    status, said = await commands.run(rebuild())
    assert (status, commands.called.exists()) == (2, True), said
    assert "Spark needs Java 17 or newer" in said
