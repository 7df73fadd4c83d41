"""
Who may be asked what became of a transaction: the producers of a group that said so. PURE.

A producer asks for checks again and again; between two requests it is known, but is not waiting. The
one that prepared a transaction is asked first, because it may still be at work on it: another one
would look too early.

Used by `coordinator`, which has the questions.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Checkers"]

S = TypeVar("S")
A = TypeVar("A")


class _Checker(NamedTuple, Generic[A]):
    """One producer; `answer` is called once with what it is asked, or is None between requests."""

    group: str
    client_id: str
    answer: Callable[[A], None] | None


class Checkers(Generic[S, A]):
    """The producers by their connection; `A` is what they are answered."""

    def __init__(self) -> None:
        self._known: dict[S, _Checker[A]] = {}
        # By group, those that wait; who was asked last comes last.
        self._waiting: dict[str, dict[S, None]] = {}

    def wait(
        self, session: S, group: str, client_id: str, answer: Callable[[A], None]
    ) -> Callable[[A], None] | None:
        """Notes who waits for questions; returns whom it replaces, to be answered with nothing."""
        replaced = self._known.get(session)
        self.forget(session)
        self._known[session] = _Checker(group, client_id, answer)
        self._waiting.setdefault(group, {})[session] = None
        return replaced.answer if replaced is not None else None

    def forget(self, session: S) -> None:
        """A connection ended, or belongs to another client now."""
        known = self._known.pop(session, None)
        if known is not None:
            self._rest(session, known.group)

    def is_waited_in(self, group: str) -> bool:
        """Whether a producer of a group waits for questions."""
        return group in self._waiting

    def is_waiting(self, session: S, answer: Callable[[A], None]) -> bool:
        """Whether a producer waits for questions still, as it did when it gave this `answer`."""
        known = self._known.get(session)
        return known is not None and known.answer is answer

    def choose(self, group: str, client_id: str, *, anybody: bool) -> S | None:
        """Returns the producer to ask about what a client prepared; None where there is none now.

        As long as that client is there no other one is asked, unless `anybody`.
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
        """Ends the waiting of a producer, and returns how to answer it; None if it does not wait."""
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
