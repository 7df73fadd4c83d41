"""Spark and its Java: the version is read from what Java says, and what is missing is explained."""

import stat
from pathlib import Path

import pytest

from samples.bank.demo import spark
from samples.bank.demo.spark import java_version, missing_spark


@pytest.mark.parametrize(
    ("shown", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no java here", None),
    ],
)
def test_the_major_version_is_read(shown: str, version: int | None) -> None:
    assert java_version(shown) == version


def fake_java(home: Path, script: str) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo 'openjdk version \"11.0.1\"' >&2", "is Java 11, and Spark needs 17"),
        ("echo hello", "does not say its version"),
        ("exit 1", "does not run"),
        (
            'test "$1" = -version && echo \'openjdk version "21"\'',
            "lacks the module jdk.incubator.vector",
        ),
    ],
)
def test_a_java_that_will_not_do_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, sentence: str
) -> None:
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert sentence in (missing_spark() or "")


def test_a_java_that_will_do_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert missing_spark() is None


def test_no_java_at_all_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no java on the PATH" in (missing_spark() or "")


def test_a_missing_package_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    assert missing_spark() == "PySpark is not installed"
    assert "pip install 'headrace[spark]'" in spark.SPARK_HINT
