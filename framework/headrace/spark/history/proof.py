"""
Compares the messages of a part with the event store, some at a time and in order.

    messages/*.parquet ─▶ a batch ─▶ what the store has of its commands ─▶ verdict

Memory does not grow with the part: it holds one batch, and names of at most `NAMED_MAX` messages of each
kind. Used by `seal`; reads the event store over one connection.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import ProjectionError
from headrace.events.seals import Seal
from headrace.serialization import Serializer
from headrace.spark.archive import ExportedPart, messages_at_once, part_folder, queue_file
from headrace.spark.history.verdict import Deviation, Found, PartMessage, compare, wanted_of
from headrace.stores.base import StoreIdentity
from headrace.stores.database.command_bodies import CommandBodies

__all__ = ["NAMED_MAX", "PartProof", "StoreProof"]

# Messages of each kind that are named; all are counted. Enough to see what they have in common.
NAMED_MAX: Final = 20
# Commands that one query looks up: enough to be quick, with few parameters and little memory.
_LOOKED_UP_MAX: Final = 1_000
_WHY: Final = {
    Found.DIFFERS: "the event store holds another stream",
    Found.MISSING: "the event store has no such stream",
    Found.DAMAGED: "the event store's stream is not what was stored: its checksum differs",
    Found.FOREIGN: "the event store does not vouch for it",
}


@dataclass(slots=True, kw_only=True)
class PartProof:
    """What the comparison of a part has found.

    Attributes:
        part: the part.
        messages: how many were compared.
        counts: how many there are of each kind that is not the same.
        differences: sentences that name those where part and store differ; none: they agree.
        foreign: sentences that name messages which the store does not vouch for.
    """

    part: ExportedPart
    messages: int = 0
    counts: Counter[Found] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def add(self, queue: str, different: Sequence[Deviation]) -> None:
        """Counts messages that are not the same, and names the first of each kind."""
        for each in different:
            self.counts[each.found] += 1
            if self.counts[each.found] <= NAMED_MAX:
                version = "" if each.version is None else f" version {each.version}"
                named = self.foreign if each.found is Found.FOREIGN else self.differences
                named.append(
                    f"{queue} offset {each.offset}: {each.aggregate_id!r}{version}, command"
                    f" {each.command_id!r}: {_WHY[each.found]}"
                )


class StoreProof:
    """An event store that parts are compared with.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.
        serializer: decodes streams whose bytes differ.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """

    def __init__(self, url: str, serializer: Serializer) -> None:
        self._bodies = CommandBodies(url)
        self._serializer = serializer
        self._runner = asyncio.Runner()
        self._identity: StoreIdentity | None = None

    def identity(self) -> StoreIdentity:
        """Returns which event store this is.

        Raises:
            SchemaOutOfDate: there is no database, or its schema is not this version's.
            DefinitionError: the database is in memory.
            sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
        """
        if self._identity is None:
            self._identity = self._runner.run(self._bodies.identity())
        return self._identity

    def prove(self, folder: Path, part: ExportedPart) -> PartProof:
        """Compares a part with the store; reads all its messages.

        Raises:
            ProjectionError: a file cannot be read.
            sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
        """
        seal = Seal(self.identity())
        proof = PartProof(part=part)
        for queue, end in sorted(part.end.items()):
            if part.start[queue] == end:
                continue
            path = queue_file(part_folder(folder, part.number), "messages", queue)
            for messages in _read(path):
                stored = self._runner.run(self._bodies.find(wanted_of(messages)))
                different = compare(
                    messages,
                    stored,
                    broken=set(seal.broken([each.body for each in messages])),
                    decode=self._serializer.decode_stream,
                )
                proof.messages += len(messages)
                proof.add(f"{part.topic}/{queue}", different)
        return proof

    def close(self) -> None:
        """Closes the connection."""
        self._runner.run(self._bodies.aclose())
        self._runner.close()


def _read(path: Path) -> Iterator[list[PartMessage]]:
    try:
        with pq.ParquetFile(path) as parquet:
            size = min(_LOOKED_UP_MAX, messages_at_once(parquet.metadata))
            for batch in parquet.iter_batches(size, columns=["offset", "key", "body"]):
                columns = (batch[name].to_pylist() for name in ("offset", "key", "body"))
                yield [PartMessage(*each) for each in zip(*columns, strict=True)]
    except (OSError, pa.ArrowException) as error:
        raise ProjectionError(f"{path} cannot be read: {error}; restore it from a copy") from error
