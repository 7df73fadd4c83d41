"""
Finds a replica to read from, among the brokers of an address, and gives it up as soon as it does not serve.

    each broker, in a random order ─▶ HELLO with `reads` ─▶ a replica in sync serves │ NOT_LEADER │ the leader: passed over
    lost, or refused ─▶ the others ─▶ none serves ─▶ None: read from the leader; asked again some seconds later

No list of replicas is kept: whether a broker is one in sync, it alone knows at the moment. Used by `reader`, from one thread.
"""

import random
import time

from headrace_mq._net.address import BrokerAddress, reasons_of
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.sync.connection import BlockingConnection, places_of
from headrace_mq.errors import MessageQueueError

__all__ = ["Replicas"]

# A replica that needs longer is no help.
REPLICA_TIMEOUT_MS = 2_000
# How long reads stay with the leader where no replica served: about the time that one needs to be in sync again.
AGAIN_S = 5.0

_log = get_logger(__name__)


class Replicas:
    """The replicas of one group, of which one is read from at a time.

    Args:
        address: names all brokers of the group, or name servers that do.
        timeout_ms: the longest silence of one.
    """

    def __init__(self, address: BrokerAddress, timeout_ms: int) -> None:
        self._address = address
        self._timeout_ms = min(timeout_ms, REPLICA_TIMEOUT_MS)
        self._connection: BlockingConnection | None = None
        self._again_s = 0.0
        self._lost: dict[tuple[str, int], Exception] = {}
        self._place = ("", 0)
        self._told = False

    def connection(self) -> BlockingConnection | None:
        """Returns a connection to a replica in sync; None: none serves, so read from the leader."""
        if self._connection is not None or time.monotonic() < self._again_s:
            return self._connection
        failures: dict[tuple[str, int], Exception] = dict(self._lost)
        try:
            known = places_of(self._address, self._timeout_ms)
        except MessageQueueError as error:
            known, failures = (), {self._address.places[0]: error}
        places = [place for place in known if place not in self._lost]
        for place in random.SystemRandom().sample(places, len(places)):
            found = self._reached(place, failures)
            if found is not None:
                self._place, self._connection = place, found
                return found
        self._lost.clear()
        self._again_s = time.monotonic() + AGAIN_S
        self._tell(reasons_of(failures))
        return None

    def _reached(
        self, place: tuple[str, int], failures: dict[tuple[str, int], Exception]
    ) -> BlockingConnection | None:
        one = str(self._address._replace(places=(place,), cluster=None))
        try:
            found = BlockingConnection(one, timeout_ms=self._timeout_ms, reads=True)
        except (MessageQueueError, OSError) as error:
            failures[place] = error
            return None
        if found.is_to_replica:
            return found
        failures[place] = MessageQueueError("it leads")
        found.close()
        return None

    def lost(self, connection: BlockingConnection, error: Exception) -> None:
        """Gives the replica up that failed; another one is looked for, and this one is asked again some seconds later."""
        if connection is self._connection:
            self.close()
            self._lost[self._place] = error

    def close(self) -> None:
        """Closes the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _tell(self, reason: str) -> None:
        if not self._told:
            self._told = True
            _log.warning(
                "no replica in sync serves reads, so they go to the leader",
                address=str(self._address), reason=reason,
            )  # fmt: skip
