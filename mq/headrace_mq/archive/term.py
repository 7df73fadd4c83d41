"""
The time in which a broker leads its group, as the archive sees it, and how an archive is compared with its log.

    archive   │ epoch 1 │ epoch 2       │ epoch 4 ──▶ position
    own log   │ epoch 1 │ epoch 2 │ epoch 5 …
                                  └ agreed: what the archive has from here on, this broker never had

Position and epochs of an archive are kept with its rows. Two logs are equal below the end of the newest epoch that both have, so
a new leader knows how much of the archive is its own log's, also after a promotion with loss.

Used by `claim`, `archiver` and `database`; `_LeadersTerm` of `broker.storage` is a `Term`.
"""

from typing import Final, Protocol

import msgspec

from headrace_mq.store.replication.epochs import EpochHistory

__all__ = [
    "EPOCHS_KEPT_MAX",
    "NO_EPOCHS",
    "Start",
    "Term",
    "agreed",
    "decode_epochs",
    "epochs_below",
]

# The epochs of a log that was written without a group.
NO_EPOCHS: Final = "[]"
# The newest epochs that an archive remembers, a few bytes each: more than the failovers between two that are compared.
EPOCHS_KEPT_MAX = 100

# Epoch, and the log position of its first byte.
Start = tuple[int, int]


class Term(Protocol):
    """The time in which this broker leads its group."""

    @property
    def epoch(self) -> int:
        """The number of the term; a later leader's is larger."""
        ...

    def starts(self, log: str) -> list[Start]:
        """Returns every epoch of a log with the position of its first byte, oldest first."""
        ...

    async def confirmed(self) -> None:
        """Returns when all brokers in sync have the files that this one has written; never, if it stops to lead."""
        ...

    def suspect(self, log: str, position: int, length: int) -> None:
        """Has other brokers asked for a damaged range of a log."""
        ...

    def sound_until(self, log: str, start: int) -> int | None:
        """Returns where a log may yet get messages that it lacks, from another broker or at the next start; None: nowhere.

        What ends at or below `start` does not count.
        """
        ...


def epochs_below(term: Term | None, log: str, position: int) -> str:
    """Returns the newest epochs of a log below a position, as the archive keeps them; none without a group."""
    if term is None:
        return NO_EPOCHS
    starts = [start for start in term.starts(log) if start[1] < position]
    return msgspec.json.encode(starts[-EPOCHS_KEPT_MAX:]).decode()


def decode_epochs(epochs: str) -> EpochHistory:
    """Reads what `epochs_below` made.

    Raises:
        ValueError: it is none.
    """
    return EpochHistory(msgspec.json.decode(epochs, type=list[Start]))


def agreed(archived: EpochHistory, position: int, own: EpochHistory, end: int) -> int:
    """Returns the log position below which an archive and a log are equal.

    Args:
        archived: the epochs of the archive.
        position: where the archive ends.
        own: the epochs of the log.
        end: where the log ends.
    """
    while position:
        last = archived.last(position)
        found, found_end = own.end_of(last, end)
        if found == last and found_end >= position:
            break
        position = archived.parts_at(position, found, found_end)
    return position
