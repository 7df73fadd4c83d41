"""
The broker's own files beside the store's: where they are, what they hold, how they are repaired.

Sits between: `server`, which opens them, and `metadata_file`, which keeps one value each. The
commands that check and repair a directory ask here what may be in it.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from headrace_mq.broker.epoch import KeptBroker
from headrace_mq.broker.metadata_file import MetadataFile
from headrace_mq.broker.offsets import KeptOffsets
from headrace_mq.broker.topics import KeptTopics

__all__ = [
    "METADATA_FOLDER",
    "METADATA_KINDS",
    "METADATA_LOSSES",
    "broker_file",
    "offsets_file",
    "topics_file",
]

# Beside the store's own folders.
METADATA_FOLDER = "metadata"
METADATA_KINDS: Mapping[str, type] = MappingProxyType(
    {"broker.json": KeptBroker, "topics.json": KeptTopics, "offsets.json": KeptOffsets}
)
# What a start without the file does.
METADATA_LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "broker.json": "the epoch is then taken from the clock",
        "topics.json": (
            "topics that hold messages are then found again, empty ones have to be created again"
        ),
        "offsets.json": "every group then begins where its consumers' settings say",
    }
)


def broker_file(store: Path) -> MetadataFile[KeptBroker]:
    """The file with the broker's last epoch, in the directory `store`."""
    return MetadataFile(_path(store, "broker.json"), KeptBroker, repair=_repair(store, "broker"))


def topics_file(store: Path) -> MetadataFile[KeptTopics]:
    """The file with the topics."""
    return MetadataFile(_path(store, "topics.json"), KeptTopics, repair=_repair(store, "topics"))


def offsets_file(store: Path) -> MetadataFile[KeptOffsets]:
    """The file with the groups' committed offsets."""
    return MetadataFile(_path(store, "offsets.json"), KeptOffsets, repair=_repair(store, "offsets"))


def _path(store: Path, name: str) -> Path:
    return store / METADATA_FOLDER / name


def _repair(store: Path, name: str) -> str:
    return (
        f"Restore it from a backup, or see what is damaged with `headrace store check {store}` and"
        f" move it away with `headrace store repair {store} --apply`:"
        f" {METADATA_LOSSES[f'{name}.json']}."
    )
