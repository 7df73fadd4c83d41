"""
The event store read from its beginning: how many events there are, and how transfers ended.

Sits between: the event store, which is the truth, and the demo's last questions.
"""

from headrace.stores.base import EventStore
from samples.bank.transfers import TransferCancelled, TransferCompleted

__all__ = ["Journal"]


class Journal:
    """Follows an event store.

    Attributes:
        events: how many have been read.
        versions: the latest version of each aggregate, by its id.
        transfers: "completed" or "cancelled", by transfer id, for those that have ended.
    """

    def __init__(self, store: EventStore) -> None:
        self.events = 0
        self.versions: dict[str, int] = {}
        self.transfers: dict[str, str] = {}
        self._store = store
        self._position = 0

    async def advance(self) -> None:
        """Reads what was stored since the last time."""
        while page := await self._store.read_all(after_position=self._position):
            for stored in page:
                stream = stored.stream
                self._position = stored.position
                self.events += len(stream.events)
                if stream.version is not None:
                    self.versions[stream.aggregate_id] = stream.version
                for event in stream.events:
                    if isinstance(event, TransferCompleted):
                        self.transfers[stream.aggregate_id] = "completed"
                    elif isinstance(event, TransferCancelled):
                        self.transfers[stream.aggregate_id] = "cancelled"
