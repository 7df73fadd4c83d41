"""
The gateway's connections: how many one address may have, and how long a request may take to arrive.

An address that has as many as it may, and opens one more:

    some of its connections wait for no answer     of these, the one with the oldest request is closed
    all of them wait for an answer                 the new one is refused: 503

Used by `server`, which gives it to uvicorn.
"""

import asyncio
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace._runtime.log import get_logger
from headrace.gateway.settings import GatewaySettings

__all__ = ["Connection", "Connections"]

log = get_logger(__name__)


def _said(status: str, detail: str, *headers: str) -> bytes:
    """Returns a whole answer as bytes, for a connection that has no request yet."""
    code, _, title = status.partition(" ")
    body = f'{{"type":"about:blank","title":"{title}","status":{code},"detail":"{detail}"}}'
    head = (
        f"HTTP/1.1 {status}",
        "Content-Type: application/problem+json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    )
    return "\r\n".join([*head, "", body]).encode()


_TOO_MANY: Final = (
    "this address has as many requests at work as connections_per_address_max allows; the same"
    " request later is safe"
)
_TOO_SLOW: Final = _said(
    "408 Request Timeout", "the head of the request did not arrive within head_ms"
)


class Connections:
    """Counts connections by address, and makes protocols for a server.

    Args:
        settings: the limits.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        # Connections of an address; the one with the oldest request comes first.
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._warned: set[str] = set()
        later = f"Retry-After: {settings.retry_after_s}"
        #: The answer to a connection that is refused.
        self.refusal = _said("503 Service Unavailable", _TOO_MANY, later)
        #: What uvicorn calls for each connection.
        self.protocol: Any = partial(Connection, self, settings.head_ms)

    def admit(self, connection: "Connection", address: str) -> bool:
        """Counts a connection; False if its address has too many, and all of them wait for us."""
        known = self._by_address.setdefault(address, {})
        if len(known) >= self._settings.connections_per_address_max:
            idle = next((each for each in known if each.is_awaited), None)
            self._warn(address)
            if idle is None:
                return False
            del known[idle]
            idle.transport.abort()
        known[connection] = None
        return True

    def heard(self, connection: "Connection", address: str) -> None:
        """Notes a request of a connection."""
        known = self._by_address.get(address, {})
        if connection in known:
            del known[connection]
            known[connection] = None

    def leave(self, connection: "Connection", address: str) -> None:
        """Counts a connection no more, if it was counted."""
        known = self._by_address.get(address, {})
        known.pop(connection, None)
        if not known:
            self._by_address.pop(address, None)
            self._warned.discard(address)

    def _warn(self, address: str) -> None:
        if address not in self._warned:
            self._warned.add(address)
            log.warning(
                "an address has as many connections as it may; each further one closes the one that"
                " sends nothing for longest",
                address=address,
                connections_per_address_max=self._settings.connections_per_address_max,
            )


class Connection(H11Protocol):
    """uvicorn's connection, which has to say what it wants in time.

    Args:
        connections: those of all addresses.
        head_ms: how long the head of a request may take.
        of_uvicorn: as uvicorn makes its own.
    """

    def __init__(self, connections: Connections, head_ms: int, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._connections = connections
        self._head_s = head_ms / 1_000
        self._address = ""
        self._begun = False
        self._late: asyncio.TimerHandle | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the next step is the client's: a request, or the rest of one."""
        return self._is_between_requests or self.cycle.more_body

    @property
    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn says the same of its own
        """Begins, if the address may have one more."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if self._connections.admit(self, self._address):
            self._expect_head()
        else:
            transport.write(self._connections.refusal)
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Reads on, within the time for a head."""
        if self.transport.is_closing():
            return
        self._begun = True
        before = self.cycle
        super().data_received(data)
        if self._is_between_requests:
            self._expect_head()
        else:
            self._have_head()
        if self.cycle is not before:
            self._connections.heard(self, self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends."""
        self._have_head()
        self._connections.leave(self, self._address)
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self._head_s, self._end_late)

    def _have_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end_late(self) -> None:
        self._late = None
        if self._is_between_requests and not self.transport.is_closing():
            if self._begun:
                self.transport.write(_TOO_SLOW)
            self.transport.close()
