"""
The connection to the broker that leads: where it is gone, and its group has others, the next leader is asked.

    asked ─▶ the connection ended │ NOT_LEADER │ it stops ─▶ connect to the group again ─▶ asked again, for the time of one silence

A lone broker is not asked again: its caller decides that. Used by `reader`, from one thread.
"""

import time
from typing import TypeVar

from headrace_mq._net.address import BrokerAddress
from headrace_mq.client.sync.connection import BlockingConnection
from headrace_mq.errors import (
    BrokerStopping,
    Closed,
    ConnectionLost,
    MessageQueueError,
    NotLeader,
    RequestTimeout,
    TlsFailed,
)
from headrace_mq.protocol.bodies import Body, decode
from headrace_mq.protocol.codes import RequestCode

__all__ = ["LEADER_IS_GONE", "Leader", "Search"]

# How soon a group is asked again; an election takes about a second.
_AGAIN_S = 0.1
# Closed: another read of the same reader has given the connection up.
LEADER_IS_GONE = (NotLeader, BrokerStopping, ConnectionLost, RequestTimeout, Closed)

B = TypeVar("B", bound=Body)


class Leader:
    """The broker that serves clients, whichever one it is.

    Args:
        address: of a broker, of all of a group, or of name servers.
        timeout_ms: the longest silence of the broker, while connecting and later.
    """

    def __init__(self, address: str, *, timeout_ms: int) -> None:
        parsed = BrokerAddress.parse(address)
        self._address = address
        self._timeout_ms = timeout_ms
        self._has_others = len(parsed.places) > 1 or parsed.cluster is not None
        self._connection: BlockingConnection | None = None
        self._is_closed = False

    def connection(self) -> BlockingConnection:
        """Returns the connection, which is made where there is none.

        Raises:
            Closed: after `close`.
            ConnectionLost: no broker serves.
        """
        if self._is_closed:
            raise Closed(f"the reader of {self._address} is closed; make a new one")
        if self._connection is None:
            self._connection = BlockingConnection(self._address, timeout_ms=self._timeout_ms)
        return self._connection

    def ask(self, kind: type[B], code: RequestCode, body: Body) -> B:
        """Asks, and returns the answer. Raises as `tell`."""
        return decode(kind, self.tell(code, body))

    def tell(self, code: RequestCode, body: Body) -> memoryview:
        """Asks what may be asked twice, and returns the body of the answer.

        Raises:
            BrokerError: the broker refused.
            ConnectionLost, RequestTimeout, Closed: no answer will come.
        """
        search = Search(self)
        while True:
            try:
                connection = search.connection()
                return connection.receive(connection.send(code, body))
            except LEADER_IS_GONE as error:
                search.go_on(error)

    def begin_again(self, connection: BlockingConnection | None) -> bool:
        """Gives a connection up; returns whether another broker may lead."""
        if self._is_closed or not self._has_others:
            return False
        if connection is not None and connection is self._connection:
            self._connection = None
            connection.close()
        return True

    @property
    def patience_s(self) -> float:
        """How long the next leader is looked for."""
        return self._timeout_ms / 1_000

    def close(self) -> None:
        """Closes the connection."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()


class Search:
    """One question, until a leader has answered it or the time is over.

    Args:
        leader: is asked.
    """

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._used: BlockingConnection | None = None
        self._until_s: float | None = None

    def connection(self) -> BlockingConnection:
        """Returns the connection to ask over. Raises as `Leader.connection`."""
        self._used = None
        self._used = self._leader.connection()
        return self._used

    def found(self) -> None:
        """Notes that a leader answered: the time begins again with the next failure."""
        self._until_s = None

    def go_on(self, error: MessageQueueError) -> None:
        """Waits a moment for the next leader after a failure; raises the error where there is none, or the time is over."""
        now_s = time.monotonic()
        # A first failure to connect has taken its time already.
        is_over = self._used is None if self._until_s is None else now_s > self._until_s
        if is_over or isinstance(error, TlsFailed) or not self._leader.begin_again(self._used):
            raise error
        if self._until_s is None:
            self._until_s = now_s + self._leader.patience_s
        time.sleep(_AGAIN_S)
