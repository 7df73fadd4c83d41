"""
A broker with TLS, a login and least permissions, as `headrace demo --secure` starts it.

    certificates ─▶ administrator, in the broker's folder ─▶ broker ─▶ user `bank` and its rules

Used by the demo; runs the commands of docs/login.md. Passwords stand in files of this user alone.
"""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from headrace._runtime.private_files import open_new
from samples.bank.demo.folder import Folder
from samples.bank.demo.processes import Child, ChildFailed, complete, running

__all__ = ["secured_broker"]

USER: Final = "bank"
# What an application needs: its own topics, and its own groups.
RULES: Final = (
    ("publish", "topic:bank.*"),
    ("consume", "topic:bank.*"),
    ("create", "topic:bank.*"),
    ("consume", "group:bank.*"),
)


@asynccontextmanager
async def secured_broker(folder: Folder, group: asyncio.TaskGroup) -> AsyncIterator[str]:
    """Runs the broker until the block ends; yields its address, with the user of the bank in it.

    Raises:
        ChildFailed: a command failed, or the broker did not start.
    """
    tls, log = folder.path / "tls", folder.logs / "broker.log"
    ca, ready = tls / "ca.pem", folder.path / "secured"
    passwords = {name: folder.path / f"{name}.txt" for name in ("root", USER)}
    first = not ready.exists()
    if first:
        await asyncio.to_thread(_clear, tls, folder.broker, *passwords.values())
        await _command(log, "certificates", "make", str(tls))
        for path in passwords.values():
            with open_new(path, "w") as file:
                file.write(secrets.token_urlsafe(24))
        root = ("--new-password-file", str(passwords["root"]))
        await _command(log, "user", "add", "root", "--admin", "--data", str(folder.broker), *root)
    broker = Child(
        "broker",
        *("broker", "--data", str(folder.broker), "--port", "0", "--log-format", "json"),
        *(
            "--login",
            "--tls-certificate",
            str(tls / "server.pem"),
            "--tls-key",
            str(tls / "server.key"),
        ),
        log=log,
        group=group,
    )
    async with running(broker) as line:
        place = f"tls://{line.rpartition(' ')[2]}?ca={quote(str(ca))}"
        if first:
            at = ("--broker", f"{place}&user=root&password_file={quote(str(passwords['root']))}")
            await _command(
                log, "user", "add", USER, "--new-password-file", str(passwords[USER]), *at
            )
            for action, resource in RULES:
                await _command(log, "acl", "allow", USER, action, resource, *at)
            ready.touch()
        yield f"{place}&user={USER}&password_file={quote(str(passwords[USER]))}"


def _clear(*paths: Path) -> None:
    """Deletes what a demo left that was interrupted before its users were there; no event is."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


async def _command(log: Path, *arguments: str) -> None:
    status, _ = await complete(*arguments, log=log)
    if status:
        raise ChildFailed(
            f"the command `headrace {' '.join(arguments[:2])}` failed; its log is {log}"
        )
