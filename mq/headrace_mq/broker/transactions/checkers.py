"""
The producers that can answer checks of transactions, by group. PURE.

A producer requests checks again and again; between two requests it is known, but does not wait. The broker asks
first the producer that prepared a transaction, because it may still be working on it: another one could decide too
early.

Used by `coordinator`, which has the checks.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Checkers"]

S = TypeVar("S")
A = TypeVar("A")


class _Checker(NamedTuple, Generic[A]):
    """One producer; `answer` is called once with its checks; it is None between two requests."""

    group: str
    client_id: str
    answer: Callable[[A], None] | None


class Checkers(Generic[S, A]):
    """The producers by their connection; `A` is the type of the answer."""

    def __init__(self) -> None:
        self._known: dict[S, _Checker[A]] = {}
        # The waiting producers by group; the one that was asked last comes last.
        self._waiting: dict[str, dict[S, None]] = {}

    def wait(
        self, session: S, group: str, client_id: str, answer: Callable[[A], None]
    ) -> Callable[[A], None] | None:
        """Notes a waiting producer; returns the `answer` it replaces, to be called without checks."""
        replaced = self._known.get(session)
        self.forget(session)
        self._known[session] = _Checker(group, client_id, answer)
        self._waiting.setdefault(group, {})[session] = None
        return replaced.answer if replaced is not None else None

    def forget(self, session: S) -> None:
        """Drops a connection that ended, or that belongs to another client now."""
        known = self._known.pop(session, None)
        if known is not None:
            self._rest(session, known.group)

    def is_waited_in(self, group: str) -> bool:
        """Whether a producer of a group waits for checks."""
        return group in self._waiting

    def is_waiting(self, session: S, answer: Callable[[A], None]) -> bool:
        """Whether a producer still waits with this `answer`."""
        known = self._known.get(session)
        return known is not None and known.answer is answer

    def choose(self, group: str, client_id: str, *, anybody: bool) -> S | None:
        """Returns the producer to ask about a client's transactions; None if there is none now.

        While that client is connected, no other one is asked, unless `anybody`.
        """
        waiting = self._waiting.get(group, {})
        for session in waiting:
            if self._known[session].client_id == client_id:
                return session
        is_there = any(
            known.client_id == client_id and known.group == group for known in self._known.values()
        )
        return None if is_there and not anybody else next(iter(waiting), None)

    def take(self, session: S) -> Callable[[A], None] | None:
        """Ends the wait of a producer and returns its `answer`; None if it does not wait."""
        known = self._known.get(session)
        if known is None or known.answer is None:
            return None
        self._known[session] = known._replace(answer=None)
        self._rest(session, known.group)
        return known.answer

    def _rest(self, session: S, group: str) -> None:
        waiting = self._waiting.get(group)
        if waiting is not None:
            waiting.pop(session, None)
            if not waiting:
                del self._waiting[group]
