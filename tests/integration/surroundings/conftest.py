"""Processes in which some modules cannot be imported, as on another system or without an extra."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REFUSAL = """
import os, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["REFUSED"].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in os.environ["REFUSED"].split(","):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refused())
for name in os.environ["MISSING"].split(","):
    if name:
        delattr(os, name)
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """Starts Python in `tmp_path`; `refused` modules and `missing` names of `os` are not there."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(REFUSAL, encoding="utf-8")

    def begin(*arguments: str, refused: set[str], missing: set[str]) -> "subprocess.Popen[str]":
        environment = {
            **os.environ,
            "REFUSED": ",".join(refused),
            "MISSING": ",".join(missing),
            "PYTHONPATH": str(tmp_path / "site"),
        }
        environment.pop("PYTHONSAFEPATH", None)
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return begin
