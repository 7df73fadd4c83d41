"""
Who the producers are whose ids stand in the messages: where they connected from, and as what.

A batch names its producer by a number; what that number means is noted here once for each
connection, so that a message costs nothing and its sender can be told as long as it is remembered.

Used by PRODUCE, which notes a producer with its first batch; kept in a `files.metadata_file`.
"""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.peers.peers import Peer
from headrace_mq.errors import DataCorrupt
from headrace_mq.protocol.administration import ProducerDescription

__all__ = ["PRODUCERS_REMEMBERED_MAX", "KeptProducer", "KeptProducers", "Producers"]

# At about 250 bytes each; those that connected longest ago are forgotten first.
PRODUCERS_REMEMBERED_MAX = 10_000

_log = get_logger(__name__)


class KeptProducer(msgspec.Struct, frozen=True):
    """One producer, as of its newest connection."""

    client_id: str
    address: str
    software: str
    since_ms: int


class KeptProducers(msgspec.Struct, frozen=True):
    """The content of `producers.json`, the one that connected longest ago first."""

    producers: list[tuple[int, KeptProducer]]


class Producers:
    """The producers that sent something.

    Args:
        file: where they are kept.
    """

    def __init__(self, file: MetadataFile[KeptProducers]) -> None:
        self._file = file
        self._known: OrderedDict[int, KeptProducer] = OrderedDict()
        self._dirty = False

    def load(self) -> None:
        """Reads the file; a damaged one is reported and costs no more than what it told.

        Raises FormatTooNew.
        """
        try:
            kept = self._file.read()
        except DataCorrupt as error:
            _log.error(
                "the senders of stored messages are unknown: producers.json cannot be read",
                reason=str(error),
            )
            return
        if kept is not None:
            self._known = OrderedDict(kept.producers)

    def meet(self, peer: Peer, producer_id: int) -> None:
        """Notes who sends under an id; called when a connection uses another id than before."""
        peer.producer_id = producer_id
        if not producer_id:
            return
        producer = KeptProducer(peer.client_id, peer.address, peer.software, peer.since_ms)
        if self._known.get(producer_id) == producer:
            return
        self._known[producer_id] = producer
        self._known.move_to_end(producer_id)
        while len(self._known) > PRODUCERS_REMEMBERED_MAX:
            self._known.popitem(last=False)
        self._dirty = True

    def describe(self, producer_ids: Iterable[int]) -> list[ProducerDescription]:
        """Tells of those that are remembered, in the order in which they were asked for."""
        return [
            ProducerDescription(one, kept.client_id, kept.address, kept.software, kept.since_ms)
            for one in dict.fromkeys(producer_ids)
            if (kept := self._known.get(one)) is not None
        ]

    def take_changes(self) -> bytes | None:
        """Returns what `write` shall put on disk, or None where nothing changed since."""
        if not self._dirty:
            return None
        self._dirty = False
        return self._file.encode(KeptProducers(list(self._known.items())))

    def write(self, changes: bytes) -> None:
        """Makes the taken changes durable; may run in another thread, one at a time.

        Raises OSError; the changes are then taken again with the next ones.
        """
        try:
            self._file.write_encoded(changes)
        except OSError:
            self._dirty = True
            raise
