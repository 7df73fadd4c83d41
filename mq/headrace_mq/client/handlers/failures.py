"""
What happens to a record whose handler failed: it is tried again in place, or settled elsewhere.

A policy decides after every failed attempt. `Again` keeps the record where it is: its key (or its
queue) waits for the next attempt. `Settled` says that the policy itself has put the record in a
safe place, such as a retry topic or the dead letters: it is acknowledged, and what waits behind it
goes on.

Used by `attempts`; implemented by `retries`, `trace` and applications.
"""

from typing import NamedTuple, Protocol

from headrace_mq.message import Record

__all__ = ["Again", "Failure", "FailurePolicy", "InPlace", "Settled", "Verdict"]

# 2^32 times the first pause is above every longest one; a larger shift only costs memory.
_DOUBLINGS_MAX = 32


class Failure(NamedTuple):
    """A record, why its handler failed, and how often it did in this run, from 1."""

    record: Record
    error: BaseException
    attempt: int


class Again(NamedTuple):
    """The record is handled again, in place, after a pause."""

    pause_ms: int


class Settled(NamedTuple):
    """The record is safe elsewhere and done here; `where` is for the log."""

    where: str


Verdict = Again | Settled


class FailurePolicy(Protocol):
    """Decides what becomes of failed records; used by many handlers at a time."""

    async def decide(self, failure: Failure) -> Verdict:
        """Decides on one failure; what a `Settled` promises must be durable on return.

        The record's queue stays this consumer's until it returns. An error raised here is logged,
        and the record is handled again after the longest pause.
        """
        ...


class InPlace:
    """Retries for ever, in place: no record is skipped, and its key waits.

    Args:
        pause_ms_min: the first pause; doubled after each attempt.
        pause_ms_max: the longest.
    """

    def __init__(self, pause_ms_min: int, pause_ms_max: int) -> None:
        self._pause_ms_min = pause_ms_min
        self._pause_ms_max = pause_ms_max

    async def decide(self, failure: Failure) -> Verdict:
        """Always `Again`."""
        doublings = min(failure.attempt - 1, _DOUBLINGS_MAX)
        return Again(min(self._pause_ms_min << doublings, self._pause_ms_max))
