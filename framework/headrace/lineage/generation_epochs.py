"""
The epochs of a topic's brokers while a projection's generation is built.

    before anything is read    begin ─▶ the epochs are noted of the generation
    in front of the switch     settle ─▶ have messages changed since? Its offsets go back to there, and the
                               epochs of now are noted

So the generation goes live with epochs in which all that it has read is right, and a later loss is noticed.
Used by `rebuild`; reads and writes the marks of readers. It knows no broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sqlalchemy import Connection

from headrace._runtime.log import get_logger
from headrace.lineage.marks import Reader, move_back, note_epochs, read_epochs
from headrace.projections.tables.read_models import ReadModels
from headrace.transports.base import TopicLineage

__all__ = ["GenerationEpochs", "copy_epochs"]

log = get_logger(__name__)


class AskLineage(Protocol):
    """Asks what there is of a topic; `changed` says what was lost since known epochs."""

    async def __call__(self, known: Mapping[int, int], *, patient: bool) -> TopicLineage:
        """Asks; while another broker is about to lead it asks again, if it is patient."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationEpochs:
    """Notes epochs of generations that are built from a topic.

    Attributes:
        topic: its name.
        ask: asks the brokers.
    """

    topic: str
    ask: AskLineage

    async def now(self) -> Mapping[int, int]:
        """Returns the epochs of now, by queue; to be asked before anything is read.

        Raises:
            ProjectionError: the broker is away.
        """
        return (await self.ask({}, patient=False)).epochs

    async def begin(
        self, read_models: ReadModels, reader: Reader, epochs: Mapping[int, int]
    ) -> None:
        """Notes epochs of a generation; those of queues that a killed rebuild has read stay as they are."""
        await read_models.transact(partial(_note_missing, reader=reader, epochs=epochs))

    async def settle(self, read_models: ReadModels, reader: Reader) -> None:
        """Moves a generation back to where messages have changed since its epochs, and notes those of now.

        Raises:
            ProjectionError: the broker stays away.
        """
        known = await read_models.transact(partial(read_epochs, reader=reader))
        found = await self.ask(known, patient=True)
        if found.changed:
            log.warning(
                "brokers lost messages during the rebuild; it goes back to where they have changed",
                projection=reader[0],
                offsets=dict(found.changed),
            )
        if found.changed or found.epochs != known:
            await read_models.transact(
                partial(_settle, reader=reader, topic=self.topic, found=found)
            )


def copy_epochs(connection: Connection, source: Reader, target: Reader) -> None:
    """Notes of a generation that was copied what is noted of the one that it was copied from."""
    note_epochs(connection, target, read_epochs(connection, source))


def _note_missing(connection: Connection, reader: Reader, epochs: Mapping[int, int]) -> None:
    before = read_epochs(connection, reader)
    fresh = {number: epoch for number, epoch in epochs.items() if number not in before}
    note_epochs(connection, reader, fresh)


def _settle(connection: Connection, reader: Reader, topic: str, found: TopicLineage) -> None:
    move_back(connection, topic, {reader: found.changed}, all_generations=False)
    note_epochs(connection, reader, found.epochs)
