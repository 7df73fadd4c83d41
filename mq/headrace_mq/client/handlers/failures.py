"""
Policies for records whose handler failed: retry in place, or settle the record elsewhere.

A policy decides after every failed attempt. `Again` keeps the record in place: its key (or its
queue) waits for the next attempt. `Settled` means that the policy has stored the record in a safe place, such as
a retry topic or the dead letters: the record is acknowledged, and later records go on.

Used by `attempts`; implemented by `retries`, `trace` and applications.
"""

from typing import NamedTuple, Protocol

from headrace_mq.message import Record

__all__ = ["Again", "EndlessRetryPolicy", "Failure", "FailurePolicy", "Settled", "Verdict"]

# 2^32 times the first pause exceeds any sensible limit; a larger shift only costs memory.
_DOUBLINGS_MAX = 32


class Failure(NamedTuple):
    """A record, the error of its handler, and the number of failures in this run, from 1."""

    record: Record
    error: BaseException
    attempt: int


class Again(NamedTuple):
    """The record is handled again, in place, after a pause."""

    pause_ms: int


class Settled(NamedTuple):
    """The record is stored elsewhere and acknowledged here; `where` is for the log."""

    where: str


Verdict = Again | Settled


class FailurePolicy(Protocol):
    """Decides what to do with failed records; many handlers use it at a time."""

    async def decide(self, failure: Failure) -> Verdict:
        """Decides on one failure. Return `Settled` only when the record is durable elsewhere.

        This consumer keeps the record's queue until the call returns. If it raises, the error is logged,
        and the record is handled again after the longest pause.
        """
        ...


class EndlessRetryPolicy:
    """Retries in place without end: it skips no record, and the key waits.

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
