"""
Who is connected: what a client said of itself, and what it does here.

Used by the handlers, which note what a connection does, and by the list of connections.
"""

from dataclasses import dataclass

__all__ = ["Peer"]


@dataclass(slots=True, kw_only=True)
class Peer:
    """One client, from its handshake to the end of its connection.

    Attributes:
        client_id: what it calls its connection.
        address: its host and port.
        software: what it calls itself.
        since_ms: when it shook hands.
        produced: messages that were taken from it.
        reads: whether it has ever fetched.
        producer_id: under which it sent last; 0 for none.
        throttled_ms: how long its requests were held up, in all.
    """

    client_id: str = ""
    address: str = ""
    software: str
    since_ms: int
    produced: int = 0
    reads: bool = False
    producer_id: int = 0
    throttled_ms: int = 0

    @property
    def host(self) -> str:
        """Where it connects from, without the port; all its connections share this."""
        return self.address.rpartition(":")[0].strip("[]")

    def roles(self, *, member: bool) -> list[str]:
        """What it is: a producer, a consumer (member of a group) or a reader without a group."""
        found = ["producer"] if self.produced else []
        if member:
            found.append("consumer")
        elif self.reads:
            found.append("reader")
        return found
