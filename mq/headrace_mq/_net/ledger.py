"""
What each connection holds of a server's budgets, and who gives way where one is used up. PURE.

Each rule takes from a client that holds on, not from one that comes: an honest client says HELLO at once, sends
its frame in one go and reads its answers, so it is never the one that gives way.

    connections     a newcomer is refused, above what all or those of its address may have
    before HELLO    the connection that has been silent for longest goes: of all, or of one address
    requests        the connection whose frame has been arriving (or waiting) for longest goes
    answers         the connection with the most unread bytes goes

Used by `server`, which says what happened. It never knows sockets (a connection is only compared) or what a
frame means.
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Budgets", "Ledger"]

C = TypeVar("C", bound=Hashable)


class Budgets(NamedTuple):
    """The bounds over all connections; the settings of the same names say why."""

    connections_max: int
    connections_per_address_max: int
    connections_before_hello_max: int
    requests_bytes_max: int
    answers_bytes_max: int
    connections_before_hello_per_address_max: int = 128


class Ledger(Generic[C]):
    """The books of one server.

    Args:
        budgets: the bounds.

    Attributes:
        requests_bytes: held of requests that are not whole, or not handled.
        answers_bytes: not taken by clients, as far as was noted.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._hosts: dict[C, str] = {}
        self._counts: dict[str, int] = {}
        # Dicts as ordered sets: the oldest comes first.
        self._strangers: dict[C, None] = {}
        self._requests: dict[C, tuple[int, int]] = {}
        self._answers: dict[C, int] = {}
        self.requests_bytes = 0
        self.answers_bytes = 0

    def refusal(self, host: str) -> str | None:
        """Why a newcomer from an address is turned away; None where there is room."""
        budgets = self._budgets
        if len(self._hosts) >= budgets.connections_max:
            return (
                f"this broker serves {budgets.connections_max} connections and all are taken;"
                " close some, or raise connections_max"
            )
        if self._counts.get(host, 0) >= budgets.connections_per_address_max:
            return (
                f"this broker serves {budgets.connections_per_address_max} connections of one"
                f" address, and {host} has them all; close some, or raise"
                " connections_per_address_max"
            )
        return None

    def enter(self, connection: C, host: str) -> C | None:
        """Counts a newcomer in; returns whom it drives out: who has been silent for too long."""
        self._hosts[connection] = host
        self._counts[host] = self._counts.get(host, 0) + 1
        self._strangers[connection] = None
        if len(self._strangers) > self._budgets.connections_before_hello_max:
            return next(iter(self._strangers))
        most = self._budgets.connections_before_hello_per_address_max
        if len(self._strangers) <= most:
            return None
        of_host = [one for one in self._strangers if self._hosts.get(one) == host]
        return of_host[0] if len(of_host) > most else None

    def greet(self, connection: C) -> None:
        """Notes that a connection has said HELLO, and has logged in where that is asked for."""
        self._strangers.pop(connection, None)

    def leave(self, connection: C) -> None:
        """Counts a connection out, with all it holds; one that was never counted in is ignored."""
        self._strangers.pop(connection, None)
        self.hold_request(connection, 0, 0)
        self.hold_answers(connection, 0)
        host = self._hosts.pop(connection, None)
        if host is not None:
            left = self._counts.pop(host) - 1
            if left:
                self._counts[host] = left

    def hold_request(self, connection: C, number: int, size: int) -> C | None:
        """Notes what a connection holds of requests; returns the connection that must go for it, if one must.

        Args:
            connection: whose.
            number: one that stays as long as the same frame is waited for.
            size: in bytes; 0: nothing.
        """
        before = self._requests.get(connection)
        self.requests_bytes += size - (before[1] if before else 0)
        if before is not None and (not size or before[0] != number):
            del self._requests[connection]
        if size:
            self._requests[connection] = number, size
        if self.requests_bytes <= self._budgets.requests_bytes_max:
            return None
        return next(iter(self._requests))

    def hold_answers(self, connection: C, size: int) -> bool:
        """Notes what a connection has not read, in bytes; returns whether all is too much."""
        self.answers_bytes += size - self._answers.pop(connection, 0)
        if size:
            self._answers[connection] = size
        return self.answers_bytes > self._budgets.answers_bytes_max

    def slow(self) -> list[C]:
        """The connections that were noted with unread answers, the heaviest first."""
        return sorted(self._answers, key=self._answers.__getitem__, reverse=True)
