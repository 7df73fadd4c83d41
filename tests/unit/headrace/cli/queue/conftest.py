"""A broker with a login in a process of its own, and commands with users."""

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.headrace.cli.called import call

READY = "headrace broker ready on "


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("guarded")
    passwords = {}
    for name in ("root", "ann"):
        passwords[name] = folder / name
        passwords[name].write_text(f"the password of {name}\n")
        passwords[name].chmod(0o600)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}

    def command(
        *arguments: str, user: str = "root", **more: str
    ) -> subprocess.CompletedProcess[str]:
        login = {"HEADRACE_USER": user, "HEADRACE_PASSWORD_FILE": str(passwords[user])}
        return call(*arguments, env={**environment, **login, **more})

    data = str(folder / "data")
    first = command(
        "user",
        "add",
        "root",
        "--admin",
        "--data",
        data,
        HEADRACE_NEW_PASSWORD_FILE=str(passwords["root"]),
    )
    assert first.returncode == 0, first.stderr
    log = (folder / "log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "broker", "--login", "--data", data, "--port", "0", "--segment-size", "1MiB"],
        stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().removeprefix(READY).strip()

    def ask(*arguments: str, user: str = "root", **more: str) -> subprocess.CompletedProcess[str]:
        return command(*arguments, "--broker", address, user=user, **more)

    yield SimpleNamespace(
        ask=ask, passwords=passwords, log=folder / "log", address=address, data=folder / "data"
    )
    process.terminate()
    process.wait(30)
    process.stdout.close()
    log.close()
