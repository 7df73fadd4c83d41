"""One sentence and a file; a traceback for a defect alone."""

import logging
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from headrace.cli.projections.spark_failures import plain_failures, told
from headrace.errors import ProjectionError

TRACE = "Traceback (most recent call last):\n  File x\n{raised}\n\n\tat org.apache.Spark(X.scala)"


def failed(raised: str) -> ProjectionError:
    error = ProjectionError("projection a: the Spark job failed")
    error.__cause__ = PySparkException(TRACE.format(raised=raised))
    return error


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_failure_of_the_cluster_is_one_sentence_that_names_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    error = told(failed("ModuleNotFoundError: No module named 'headrace'"))
    assert str(error).startswith("projection a: the Spark job failed; all that Spark said is in ")
    [file] = tmp_path.iterdir()
    assert str(error).endswith(str(file))
    assert "X.scala" in file.read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


def test_a_defect_shows_the_workers_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    told(failed("KeyError: 'nope'"))
    shown = capsys.readouterr().err
    assert shown == "Traceback (most recent call last):\n  File x\nKeyError: 'nope'\n"


def test_mistakes_and_defects_of_other_kinds_stay_as_they_are(tmp_path: Path) -> None:
    mistake, defect = ProjectionError("no such projection"), LookupError("a defect")
    assert (told(mistake), told(defect), told(7)) == (mistake, defect, 7)
    assert str(mistake) == "no such projection"
    assert list(tmp_path.iterdir()) == []


def test_the_bridge_to_java_says_nothing_meanwhile() -> None:
    bridge = logging.getLogger("py4j")
    before = bridge.level
    with plain_failures():
        assert not logging.getLogger("py4j.clientserver").isEnabledFor(logging.CRITICAL)
    assert bridge.level == before
