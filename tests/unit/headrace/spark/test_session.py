"""A local session's settings, and what is said where Java is missing."""

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, PySparkImportError, PySparkRuntimeError
from structlog.testing import capture_logs

from headrace.errors import ExtraMissing, SparkUnreachable
from headrace.spark import session
from headrace.spark.session import (
    SessionOnDemand,
    local_session,
    open_session,
    require_executor,
    run_cancellable,
    session_on_demand,
)


class Cluster:
    """Java's context of a cluster that has so many members, one look after the other; 0: it has given up."""

    def __init__(self, members: list[int]) -> None:
        self._members = members

    def statusTracker(self) -> Any:  # noqa: N802 - Spark's spelling
        count = self._members.pop(0) if len(self._members) > 1 else self._members[0]
        self._stopped = not count
        return SimpleNamespace(getExecutorInfos=lambda: [None] * count)

    def isStopped(self) -> bool:  # noqa: N802 - Spark's spelling
        return self._stopped


class FakeBuilder:
    """Collects what a session would be started with; raises `error` instead of starting."""

    def __init__(self, error: Exception | None = None) -> None:
        self.settings: dict[str, str] = {}
        self._error = error

    def master(self, url: str) -> "FakeBuilder":
        return self.config("master", url)

    def remote(self, url: str) -> "FakeBuilder":
        return self.config("remote", url)

    def appName(self, name: str) -> "FakeBuilder":  # noqa: N802 - PySpark's spelling
        return self.config("name", name)

    def config(self, key: str, value: str) -> "FakeBuilder":
        self.settings[key] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: N802 - PySpark's spelling
        if self._error is not None:
            raise self._error
        master = self.settings.get("master", "")
        return SimpleNamespace(sparkContext=SimpleNamespace(
            pythonExec="python3", master=master, getConf=dict, _jsc=SimpleNamespace(sc=lambda: Cluster([2]))
        ))  # fmt: skip


def start_with(monkeypatch: pytest.MonkeyPatch, builder: FakeBuilder) -> None:
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))


@pytest.fixture
def server() -> Iterator[str]:
    """The address of something that listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "asked",
    [{"master": "spark://127.0.0.1:1"}, {"remote": "sc://127.0.0.1:1/;use_ssl=false"},
     {"master": "spark://127.0.0.1:1,127.0.0.1:2"}],
)  # fmt: skip
def test_a_cluster_that_is_away_is_said_before_java_starts(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]
) -> None:
    start_with(monkeypatch, FakeBuilder(AssertionError("nothing may start")))
    with pytest.raises(SparkUnreachable, match=r"no Spark answers at .*127.0.0.1:1: .*check"):
        open_session(**asked)


def test_a_master_that_spark_does_not_know_is_said_before_java_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_with(monkeypatch, FakeBuilder(AssertionError("nothing may start")))
    with pytest.raises(SparkUnreachable, match=r"knows no 'sprk://x:1': use spark://HOST:7077"):
        open_session(master="sprk://x:1")


def test_a_cluster_that_refuses_and_a_server_of_another_kind_are_a_sentence(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    start_with(monkeypatch, FakeBuilder(Py4JNetworkError("Answer from Java side is empty")))
    with pytest.raises(SparkUnreachable, match=r"does not start with spark://.*Answer from Java"):
        open_session(master=f"spark://{server}")
    start_with(monkeypatch, FakeBuilder(PySparkException("failed to connect")))
    with pytest.raises(SparkUnreachable, match=r"no Spark Connect server answers at sc://.*failed"):
        open_session(remote=f"sc://{server}")


async def test_java_that_ends_under_a_job_is_a_lost_session() -> None:
    def lose() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    session: Any = TaggedSession()
    with pytest.raises(SparkUnreachable, match=r"the Spark session is gone .*refused"):
        await run_cancellable(session, "t", lose, description="some")


def waits_for(
    members: list[int], master: str = "spark://m:1", **conf: str
) -> tuple[int, list[str]]:
    """Waits for an executor; returns how many seconds, and what was logged."""
    clock = SimpleNamespace(ms=0)

    def pause(seconds: float) -> None:
        # A pause is taken for ten seconds.
        clock.ms += round(seconds * 100_000)

    context = SimpleNamespace(
        master=master, getConf=lambda: conf, _jsc=SimpleNamespace(sc=lambda: Cluster(members))
    )
    made: Any = SimpleNamespace(sparkContext=context)
    measured: Any = SimpleNamespace(monotonic_ms=lambda: clock.ms)
    with capture_logs() as logs:
        try:
            require_executor(made, clock=measured, pause=pause)
        except SparkUnreachable as error:
            logs.append({"event": str(error), "log_level": "error"})
    return clock.ms // 1_000, [each["event"] for each in logs]


def test_an_executor_is_waited_for_and_after_a_while_that_is_said() -> None:
    late = "no executor has come yet; still waiting"
    assert waits_for([1, 1, 3]) == (20, [])
    assert waits_for([1] * 9 + [2]) == (90, [late])
    seconds, (said, error) = waits_for([1])
    assert (seconds, said) == (600, late)
    assert "spark://m:1 has given this application no executor" in error
    seconds, (error,) = waits_for([1, 0])
    assert (seconds, "workers' logs" in error) == (10, True)


def test_sessions_without_executors_of_their_own_wait_for_none() -> None:
    assert waits_for([1], master="local[2]") == (0, [])
    assert waits_for([1], **{"spark.dynamicAllocation.enabled": "true"}) == (0, [])


def test_one_of_several_masters_is_enough(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    start_with(monkeypatch, builder := FakeBuilder())
    open_session(master=f"spark://127.0.0.1:1,{server}")
    assert builder.settings["master"] == f"spark://127.0.0.1:1,{server}"


def test_a_session_is_local_quiet_and_runs_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = FakeBuilder()
    start_with(monkeypatch, builder)
    started: Any = local_session("shop", cores=2, driver_memory="3g")
    assert started.sparkContext.pythonExec == sys.executable
    settings = builder.settings
    assert (settings["master"], settings["name"]) == ("local[2]", "shop")
    assert settings["spark.driver.memory"] == "3g"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    logging = settings["spark.driver.extraJavaOptions"].rpartition("file:")[2]
    assert "rootLogger.level = error" in Path(logging).read_text(encoding="utf-8")


def test_all_cores_and_another_python_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = FakeBuilder()
    start_with(monkeypatch, builder)
    started: Any = local_session(python="python3.13")
    assert builder.settings["master"] == "local[*]"
    assert started.sparkContext.pythonExec == "python3.13"


def test_without_java_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    start_with(monkeypatch, FakeBuilder(gone))
    with pytest.raises(ExtraMissing, match=r"apt-get install openjdk-17-jre-headless.*JAVA_HOME"):
        local_session()


def test_packages_that_spark_may_lack_are_named_where_java_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    monkeypatch.setattr(session.SparkSession, "builder", FakeBuilder(gone))
    wanted = {"spark.jars.packages": "org.example:lake:1"}
    with pytest.raises(
        SparkUnreachable, match=r"could not fetch org\.example:lake:1.*java -version"
    ):
        local_session(settings=wanted)


def test_other_errors_of_spark_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    other = PySparkRuntimeError(errorClass="SESSION_OR_CONTEXT_NOT_EXISTS", messageParameters={})
    start_with(monkeypatch, FakeBuilder(other))
    with pytest.raises(PySparkRuntimeError):
        local_session()


def test_a_cluster_gets_the_settings_given_and_no_loopback_address(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    builder = FakeBuilder()
    start_with(monkeypatch, builder)
    given = {"spark.pyspark.python": "python3.13", "spark.driver.memory": "9g"}
    started: Any = open_session(master=f"spark://{server}", settings=given)
    assert builder.settings["master"] == f"spark://{server}"
    assert "spark.driver.host" not in builder.settings
    assert builder.settings["spark.driver.memory"] == "9g"
    assert builder.settings["spark.sql.session.timeZone"] == "UTC"
    assert started.sparkContext.pythonExec == "python3.13"


def test_a_session_behind_a_server_is_not_given_a_driver(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    builder = FakeBuilder()
    start_with(monkeypatch, builder)
    open_session(remote=f"sc://{server}", settings={"spark.a": "b"})
    assert builder.settings == {
        "remote": f"sc://{server}", "spark.a": "b", "spark.sql.session.timeZone": "UTC"
    }  # fmt: skip


def test_a_server_is_sent_the_files_that_workers_import(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    builder, sent = FakeBuilder(), []
    start_with(monkeypatch, builder)
    made = SimpleNamespace(addArtifacts=lambda *files, pyfile: sent.append((files, pyfile)))
    monkeypatch.setattr(builder, "getOrCreate", lambda: made)
    open_session(remote=f"sc://{server}", settings={"spark.submit.pyFiles": "a.zip,b.py"})
    assert sent == [(("a.zip", "b.py"), True)]
    assert "spark.submit.pyFiles" not in builder.settings


def test_without_what_connect_needs_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    missing = PySparkImportError(
        errorClass="PACKAGE_NOT_INSTALLED",
        messageParameters={"package_name": "grpcio", "minimum_version": "1.76.0"},
    )
    start_with(monkeypatch, FakeBuilder(missing))
    with pytest.raises(ExtraMissing, match=r"pip install 'headrace\[connect\]'.*grpcio"):
        open_session(remote=f"sc://{server}")


async def test_a_session_that_is_given_stays_open_and_one_that_is_not_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped: list[str] = []

    def named(name: str) -> Any:
        return SimpleNamespace(name=name, stop=lambda: stopped.append(name))

    monkeypatch.setattr(session, "local_session", lambda: named("own"))
    start: Any = SimpleNamespace(getActiveSession=lambda: None)
    monkeypatch.setattr(session, "SparkSession", start)
    began: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        began.append(name)
        yield

    async with session_on_demand(named("given")) as sessions:
        there: Any = await sessions.get(noted("given"))
        assert there.name == "given"
    assert (began, stopped) == ([], [])
    async with session_on_demand(None) as sessions:
        assert began == []
        there = await sessions.get(noted("own"))
        assert there is await sessions.get(noted("again"))
        assert there.name == "own"
    assert (began, stopped) == (["own"], ["own"])
    # One that was never needed was never started.
    async with session_on_demand(None):
        pass
    assert stopped == ["own"]


async def test_a_session_that_others_share_is_started_by_the_first_and_outlives_them() -> None:
    stopped: list[bool] = []
    made: Any = SimpleNamespace(stop=lambda: stopped.append(True))
    starts = [made]
    shared = SessionOnDemand(start=starts.pop)
    for _ in range(2):
        async with session_on_demand(shared) as sessions:
            assert await sessions.get() is made
    assert stopped == []
    shared.stop()
    shared.stop()
    assert stopped == [True]


class TaggedSession:
    """Tells which tags were set, and lets work end when its tag is interrupted."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.interrupted = threading.Event()

    def addTag(self, tag: str) -> None:  # noqa: N802 - PySpark's spelling
        self.said.append(f"add {tag}")

    def removeTag(self, tag: str) -> None:  # noqa: N802 - PySpark's spelling
        self.said.append(f"remove {tag}")

    def interruptTag(self, tag: str) -> None:  # noqa: N802 - PySpark's spelling
        self.said.append(f"interrupt {tag}")
        self.interrupted.set()


async def test_work_has_its_tag_while_it_runs() -> None:
    session: Any = TaggedSession()
    assert await run_cancellable(session, "t", lambda: 7, description="seven") == 7
    assert session.said == ["add t", "remove t"]


async def test_a_cancellation_interrupts_the_jobs_and_waits_for_the_thread() -> None:
    session: Any = TaggedSession()
    began = threading.Event()

    def work() -> None:
        began.set()
        session.interrupted.wait(60)

    task = asyncio.create_task(run_cancellable(session, "t", work, description="some"))
    await asyncio.to_thread(began.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert session.said == ["add t", "interrupt t", "remove t"]
