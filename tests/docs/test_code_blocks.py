"""Every code block of every document runs, in order, in a folder of its own."""

import asyncio
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headrace.stores.database.schema import upgrade

# Commands that something else runs, because they build, need minutes, or run these very tests:
# the command to where it is run.
RUN_ELSEWHERE = {
    "headrace projection follow balances --app samples.bank:app --event-store sqlite:///var/events.db"
    " --read-models sqlite:///var/read.db": "tests/integration/spark/test_continuous.py",
    "headrace demo": "tests/acceptance/test_demo.py",
    "headrace run samples.bank:app --broker kafka://h1:9092,h2:9092 --event-store postgresql://bank@db/bank": "tests/integration/kafka/test_bank.py",
    "headrace projection rebuild balances --app samples.bank:app --broker kafka://h1:9092,h2:9092"
    " --event-store postgresql://bank@db/bank --read-models"
    " postgresql://bank@db/bank": "tests/integration/spark/test_kafka.py",
    "headrace topic copy 127.0.0.1:9876 kafka://h1:9092,h2:9092 --app samples.bank:app"
    " --read-models postgresql://bank@db/bank": "tests/integration/kafka/test_topic_copy.py",
    "pip install 'headrace[kafka]'": "tests/install/matrix.py",
    "make demo BROKER=kafka": "tests/kafka/test_demo.py",
    "make demo REPLICAS=3": "tests/acceptance/test_demo.py",
    "make demo": "tests/acceptance/test_demo.py",
    "make demo TRANSACTIONS=FILE.csv": "tests/acceptance/test_demo.py",
    "make fresh-demo": "tests/acceptance/test_demo.py",
    "make install": ".ci/run",
    "make test-install": "tests/install/matrix.py",
    "make test-crash COUNT=300": "tests/crash/store/test_figures.py",
    "make test-sim SEEDS=5000": "tests/simulation/test_command.py",
    "pip install headrace": "tests/install/matrix.py",
    "source .venv/bin/activate": ".ci/run",
}
# Where blocks run: this environment, or another one, as that of a wheel (tests/install/matrix.py).
PYTHON = Path(os.environ.get("HEADRACE_DOCS_PYTHON", sys.executable))
LANGUAGES = {"", "bash", "hex", "json", "python", "sql", "text", "toml"}
SERVERS = ("headrace broker --", "headrace nameserver --", "headrace run ", "headrace console")
ETCD = "etcd://127.0.0.1:2379"
# Of other servers than the first broker; each becomes a free one.
OTHER_PORTS = ("9464", "9465", "9877", "9878", "9879", *(str(port) for port in range(9886, 9892)))
READY_SECONDS_MAX = 120
COMMAND_SECONDS_MAX = 400


def commands(text: str) -> list[str]:
    """Returns the commands of a bash block; a backslash at a line's end joins it with the next."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line.strip() for line in joined.splitlines() if line.strip() and line[0] != "#"]


@cache
def migrated() -> Path:
    """Returns a database with today's schema, made once for the documents of this process."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-docs-"))
    atexit.register(shutil.rmtree, folder)
    asyncio.run(upgrade(f"sqlite:///{folder}/migrated.db"))
    return folder / "migrated.db"


class Scratch:
    """A folder in which a document's blocks run as a reader would run them."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        free_port: Callable[[], int],
        database: str = "",
        etcd: str = "",
    ) -> None:
        self.folder = folder
        self._database = database
        self._etcd = etcd
        self._servers: list[subprocess.Popen[str]] = []
        for name in ("samples", "seeds"):
            (folder / name).symlink_to(root / name)
        (folder / "var").mkdir()
        # Whoever reads of what an application does has one that ran before.
        for name in ("events", "read"):
            shutil.copyfile(migrated(), folder / "var" / f"{name}.db")
        self._port, self._http_port = str(free_port()), str(free_port())
        self._other_ports = {port: str(free_port()) for port in OTHER_PORTS}
        self._environment = os.environ | {
            "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
            "HEADRACE_PORT": self._port,
            "HEADRACE_CONSOLE_PORT": self._other_ports["9879"],
            "HEADRACE_BROKER": f"127.0.0.1:{self._port}",
        }
        self._environment.pop("PYTHONSAFEPATH", None)

    def write(self, name: str, text: str) -> None:
        """Saves a file as the reader would; the documents' port becomes a free one."""
        (self.folder / name).write_text(self._with_free_ports(text), encoding="utf-8")

    def run(self, command: str, where: str) -> None:
        """Runs a command to its end, or a server until it is ready."""
        if command.startswith(SERVERS):
            self._serve(command, where)
            return
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._with_free_ports(command)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self._environment,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{where}: {command}\n{done.stdout}\n{done.stderr}"

    def play(self, block: Any) -> None:
        """Does with a block what a reader does with it."""
        if block.language in {"python", "toml"} and block.info:
            self.write(block.info, block.text)
        elif block.language == "python":
            self.write("block.py", block.text)
            self.run("python block.py", block.where)
        elif block.language == "bash":
            for command in commands(block.text):
                if command not in RUN_ELSEWHERE:
                    self.run(command, block.where)

    def _with_free_ports(self, text: str) -> str:
        for port, free in self._other_ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}").replace(
                f"--port {port}", f"--port {free}"
            )
        return (
            text.replace("9876", self._port)
            .replace("127.0.0.1:8080", f"127.0.0.1:{self._http_port}")
            .replace('"$DATABASE_URL"', self._database)
            .replace(ETCD, self._etcd)
        )

    def _serve(self, command: str, where: str) -> None:
        log = (self.folder / f"server-{len(self._servers)}.log").open("w", encoding="utf-8")
        server = subprocess.Popen(
            self._with_free_ports(command).split(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=self.folder,
            env=self._environment,
        )
        log.close()
        self._servers.append(server)
        assert server.stdout is not None
        line = server.stdout.readline()
        assert "ready" in line, f"{where}: {command}\n{Path(log.name).read_text(encoding='utf-8')}"

    def close(self) -> None:
        """Stops the servers, the last one first."""
        for server in reversed(self._servers):
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(READY_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            assert server.stdout is not None
            server.stdout.close()


@contextmanager
def scratch(
    folder: Path, root: Path, free_port: Callable[[], int], database: str = "", etcd: str = ""
) -> Iterator[Scratch]:
    place = Scratch(folder, root, free_port, database, etcd)
    try:
        yield place
    finally:
        place.close()


@pytest.mark.timeout(900)
def test_the_blocks_of_a_document_run(
    document: Any,
    root: Path,
    tmp_path: Path,
    free_port: Callable[[], int],
    request: pytest.FixtureRequest,
) -> None:
    asks = "$DATABASE_URL" in document.text
    database = request.getfixturevalue("postgres_database") if asks else ""
    etcd = request.getfixturevalue("etcd_url") if ETCD in document.text else ""
    with scratch(tmp_path, root, free_port, database, etcd) as place:
        for block in document.blocks:
            place.play(block)


def test_every_block_is_of_a_known_language(document: Any) -> None:
    strange = [block.where for block in document.blocks if block.language not in LANGUAGES]
    assert strange == []


def test_commands_run_elsewhere_are_in_a_document_and_run_there(documents: Any, root: Path) -> None:
    written = {
        command
        for document in documents
        for block in document.blocks
        if block.language == "bash"
        for command in commands(block.text)
    }
    assert sorted(RUN_ELSEWHERE.keys() - written) == []
    assert [where for where in RUN_ELSEWHERE.values() if not (root / where).exists()] == []


def test_a_block_that_fails_is_noticed(
    documents: Any, root: Path, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    block_type = next(type(block) for one in documents for block in one.blocks)
    with scratch(tmp_path, root, free_port) as place:
        for language, text in (("python", "raise SystemExit(1)"), ("bash", "false")):
            with pytest.raises(AssertionError, match="here: "):
                place.play(block_type(language, "", text, "here"))
