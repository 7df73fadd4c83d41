"""A leader and a replica that catches up while the power goes at any change of its disk."""

import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.message_store import RETENTIONS, MessageStore
from headrace_mq.store.replication.epochs import EpochFile

__all__ = ["ReplicaScene", "closed_differences", "opened"]

EVERYTHING = 1 << 40


def opened(settings: StoreSettings, files: Any) -> MessageStore:
    """A store whose gate lets everything be seen: a leader has committed all of it."""
    gate = CommitGate()
    for log in RETENTIONS:
        gate.reached(log, EVERYTHING)
    store = MessageStore(settings, files=files, gate=gate)
    store.open()
    return store


async def closed_differences(
    one: MessageStore, other: MessageStore, files: Any, folders: tuple[Path, Path], log: str
) -> list[str]:
    """Names how two stores differ in what is no message, and closes them."""
    found = ["ends"] if one.raw.ends() != other.raw.ends() else []
    found += [damage.sentence for damage in one.damage]
    ends = one.raw.ends()
    await one.aclose()
    await other.aclose()
    epochs = [EpochFile(files, path) for path in folders]
    for file in epochs:
        file.open(ends)
    return found + (["epochs"] if epochs[0].of(log) != epochs[1].of(log) else [])


class ReplicaScene(ABC):
    """A leader and a replica in folders of their own.

    Args:
        folder: where they are.
        new: makes `files`, and a `disk` of a folder whose power can be cut.
    """

    def __init__(self, folder: Path, new: Mapping[str, Any]) -> None:
        self.folder = folder
        self.new = new
        self.leader = folder / "leader"
        self.replica = folder / "replica"

    @abstractmethod
    async def play(self) -> None:
        """Writes what both have before the replica catches up."""

    @abstractmethod
    async def catch_up(self, directory: Path, files: Any, leader_files: Any) -> None:
        """Lets a replica in a folder catch up with the leader."""

    @abstractmethod
    async def differences(self, directory: Path, files: Any) -> list[str]:
        """Names what a replica holds other than its leader."""

    async def cut_at(self, step: int) -> tuple[list[str], bool]:
        """Cuts the power at a step; returns what is wrong in the end, and whether the power went."""
        here, kept = self.folder / f"{step}", self.folder / f"{step}-kept"
        shutil.copytree(self.replica, here)
        disk = self.new["disk"](here)
        disk.cut_at = step
        try:
            await self.catch_up(here, disk, self.new["files"]())
        except (MessageQueueError, ValueError, OSError) as error:
            # An OSError is of the epochs file: its owner hears of the disk itself.
            if not disk.dead:
                return [repr(error)], False
        disk.image(kept, random.Random(step))
        disk.forget()
        files = self.new["files"]()
        try:
            await self.catch_up(kept, files, files)
            return await self.differences(kept, files), disk.dead
        except (DataCorrupt, ValueError) as error:
            return [repr(error)], disk.dead
        finally:
            shutil.rmtree(here)
            shutil.rmtree(kept)

    async def sweep(
        self, *, every: int = 1, to_first: bool = False
    ) -> tuple[dict[int, list[str]], int]:
        """Cuts at every so manyth step, or up to the first one that is wrong.

        Returns:
            What was wrong by step, and the number of cuts.
        """
        wrong, cuts = {}, 0
        while True:
            step = (cuts + 1) * every
            found, happened = await self.cut_at(step)
            if found:
                wrong[step] = found
            if not happened or (found and to_first):
                return wrong, cuts
            cuts += 1
