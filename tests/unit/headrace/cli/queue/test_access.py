"""`headrace user` and `headrace acl` against a broker with a login, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

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
        return subprocess.run(
            [sys.executable, "-m", "headrace", *arguments],
            capture_output=True, text=True, timeout=60, check=False, env={**environment, **login, **more},
        )  # fmt: skip

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

    yield SimpleNamespace(ask=ask, passwords=passwords, log=folder / "log")
    process.terminate()
    process.wait(30)
    process.stdout.close()
    log.close()


def test_an_administrator_lets_a_user_in_and_says_what_it_may_do(guarded: Any) -> None:
    added = guarded.ask(
        "user", "add", "ann", HEADRACE_NEW_PASSWORD_FILE=str(guarded.passwords["ann"])
    )
    assert (added.returncode, added.stdout) == (0, "ann: user, logs in with a password\n"), (
        added.stderr
    )
    refused = guarded.ask("topic", "create", "orders", user="ann")
    assert refused.returncode == 2
    assert "user 'ann' may not create topic:orders" in refused.stderr
    why = guarded.ask("acl", "explain", "ann", "create", "topic:orders")
    assert (why.returncode, why.stdout) == (
        1,
        "ann may not create topic:orders: no rule allows it\n",
    )
    assert (
        guarded.ask("acl", "allow", "ann", "*", "topic:ord*").stdout == "allow ann * topic:ord*\n"
    )
    assert guarded.ask("topic", "create", "orders", user="ann").returncode == 0
    why = guarded.ask("acl", "explain", "ann", "create", "topic:orders")
    assert why.stdout == "ann may create topic:orders: this rule decides: allow ann * topic:ord*\n"
    assert guarded.ask("acl", "deny", "ann", "delete", "topic:orders").returncode == 0
    assert "deny" in guarded.ask("acl", "list", "ann").stdout
    assert guarded.ask("acl", "remove", "ann", "delete", "topic:orders").returncode == 0
    assert "deny" not in guarded.ask("acl", "list").stdout
    assert guarded.ask("user", "disable", "ann").stdout.startswith("ann: disabled")
    assert "does not let 'ann' in" in guarded.ask("topic", "list", user="ann").stderr
    assert guarded.ask("user", "enable", "ann").returncode == 0
    assert guarded.ask("user", "roles", "ann", "--role", "clerks").stdout.endswith("roles clerks\n")
    assert "clerks" in guarded.ask("user", "list").stdout
    assert guarded.ask("user", "remove", "ann").stdout == "ann: removed\n"
    said = guarded.log.read_text()
    assert "audit" in said
    assert "set rule" in said
    assert "the password of" not in said
