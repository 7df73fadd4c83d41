"""
Where each epoch of a log begins: two logs are compared by it, and cut where they part.

    log      │ epoch 1        │ epoch 2   │ epoch 5 …
             0                4,096       9,000
    history  (1, 0)           (2, 4096)   (5, 9000)

A broker that begins to lead takes a new epoch, and notes here where it goes on, before it writes the first byte of it.
Replicas note what they take over. Two logs are equal below the end of the newest epoch that both have. Ends
alone do not tell that: two leaders may have written equally many bytes.

Used by the owner of a store with replicas, and by `headrace_mq.cluster`, which compares; `EpochHistory` is pure,
`EpochFile` keeps one for each log, in the format of `segment.checkpoint`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint

__all__ = ["EPOCHS_NAME", "EpochFile", "EpochHistory"]

EPOCHS_NAME = "epochs"

_log = get_logger(__name__)

# Epoch, and the log position of its first byte.
Start = tuple[int, int]


class EpochHistory:
    """The starts of the epochs of one log, oldest first. Pure."""

    __slots__ = ("_starts",)

    def __init__(self, starts: Iterable[Start] = ()) -> None:
        self._starts: list[Start] = []
        for epoch, position in starts:
            self.begin(epoch, position)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochHistory) and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"EpochHistory({self._starts})"

    @property
    def starts(self) -> list[Start]:
        """Every epoch with the position of its first byte."""
        return list(self._starts)

    def begin(self, epoch: int, position: int) -> None:
        """Adds the newest epoch. An earlier one that begins at the same position wrote nothing, and is dropped.

        Raises:
            ValueError: a newer epoch is known, or one that begins later.
        """
        if self._starts and (epoch <= self._starts[-1][0] or position < self._starts[-1][1]):
            raise ValueError(f"epoch {epoch} at {position} cannot follow {self._starts[-1]}")
        self.cut(position)
        self._starts.append((epoch, position))

    def cut(self, position: int) -> None:
        """Forgets the epochs that begin at or after a position."""
        del self._starts[bisect_left(self._starts, position, key=_position_of) :]

    def take_over(self, position: int, starts: Iterable[Start]) -> None:
        """Replaces the epochs from a position on by those of a leader's bytes that follow there.

        An own epoch may begin there that wrote nothing: the bytes of an earlier epoch would be taken for its own.
        """
        self.cut(position)
        for epoch, start in starts:
            self.begin(epoch, start)

    def last(self, end: int) -> int:
        """Returns the epoch of the last byte of a log that ends at `end`; 0 if it has none."""
        at = bisect_left(self._starts, end, key=_position_of)
        return self._starts[at - 1][0] if at else 0

    def end_of(self, asked: int, end: int) -> Start:
        """Returns the newest epoch up to `asked` that wrote something, and where it ends.

        Args:
            asked: an epoch, of this log or of another one.
            end: where this log ends.

        Returns (0, 0) if every epoch of this log is newer than `asked`.
        """
        at = bisect_right(self._starts, asked, key=_epoch_of)
        while at and self._starts[at - 1][1] >= end:
            at -= 1
        if not at:
            return (0, 0)
        behind = self._starts[at][1] if at < len(self._starts) else end
        return (self._starts[at - 1][0], min(behind, end))

    def common_end(self, epoch: int, end: int) -> int:
        """Returns up to where this log has what the leader of an epoch had; other bytes may follow.

        0 if the epoch has no byte here. That leader may have parted from this log before, in the middle of an earlier
        epoch: it began with loss, and then so did another one.

        Args:
            epoch: of any leader of this group.
            end: where this log ends.
        """
        found, found_end = self.end_of(epoch, end)
        return found_end if found == epoch else 0

    def parts_at(self, end: int, epoch: int, epoch_end: int) -> int:
        """Returns where this log must be cut, by the answer of another log's `end_of`; `end` if nowhere.

        Args:
            end: where this log ends.
            epoch: the newest epoch up to this log's last one that the other log has.
            epoch_end: its end there.
        """
        own, own_end = self.end_of(epoch, end)
        return min(own_end, epoch_end) if own == epoch else own_end

    def after(self, position: int) -> list[Start]:
        """Returns what a log that ends at a position does not know: the epochs that begin there or later."""
        return self._starts[bisect_left(self._starts, position, key=_position_of) :]


class EpochFile:
    """The histories of a store's logs, in one file; each change is durable on return.

    Args:
        files: the file system.
        directory: of the store.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / EPOCHS_NAME
        self._histories: dict[str, EpochHistory] = {}
        self._is_there = False
        self._above = 0

    @property
    def is_there(self) -> bool:
        """Whether the store has the file: whether it ever was a replica, or had one."""
        return self._is_there

    @property
    def newest(self) -> int:
        """The highest epoch of any log; 0 if there is none. No byte of the store is of a later one."""
        last = (history.starts[-1:] for history in self._histories.values())
        return max((epoch for starts in last for epoch, _ in starts), default=self._above)

    def open(self, ends: Mapping[str, int], *, instead: int = 0) -> None:
        """Reads the file; a store that never had replicas has none.

        Forgets epochs that begin where a log ends, or later: they wrote nothing that is left. Such an epoch is left by a
        crash after a cut of the log; bytes of an earlier epoch that follow there would be taken for its own.

        Args:
            ends: where each log of the open store ends.
            instead: of a broker that no group counts on: an epoch that none of its bytes is above, for a file that is damaged
                and then counts as none. 0: of a member of a group, which needs the file.

        Raises:
            DataCorrupt: it is damaged; this replica must be built again from a leader.
            FormatTooNew: a newer version wrote it.
        """
        try:
            payload = read_checkpoint(self._files, self._path)
            self._is_there = payload is not None
            if payload is None:
                return
            kept = msgspec.msgpack.decode(payload, type=dict[str, list[Start]])
            self._histories = {log: EpochHistory(starts) for log, starts in kept.items()}
        except (DataCorrupt, msgspec.DecodeError, ValueError) as error:
            if instead:
                _log.warning(
                    "the epochs of a group that this broker left are damaged", reason=str(error)
                )
                self._histories, self._is_there, self._above = {}, False, instead
                return
            raise DataCorrupt(
                f"{self._path} is damaged, and has no epochs; build this replica again from an empty directory: it copies"
                " everything. To take its messages out of the group instead, remove metadata/group.json"
            ) from error
        for log, end in ends.items():
            self.cut(log, end)

    def of(self, log: str) -> EpochHistory:
        """Returns the history of a log; change it only through this file."""
        return self._histories.setdefault(log, EpochHistory())

    def begin(self, log: str, epoch: int, position: int) -> None:
        """Notes that an epoch begins. Call it before the first byte of the epoch is written.

        Raises:
            ValueError: the log knows a newer epoch.
            OSError: the file has its old content or the new one; write nothing of that epoch.
        """
        changed = EpochHistory(self.of(log).starts)
        changed.begin(epoch, position)
        self._write({log: changed})

    def adopt(self, epoch: int, logs: Iterable[str]) -> None:
        """Notes one epoch for all that logs hold: what a broker wrote before it had replicas.

        Args:
            epoch: the highest one of the bytes; replicas cannot have others in it.
            logs: those that hold anything; all of them in one step, so that a crash leaves none without.

        Raises:
            OSError: the file is there with all of them, or not at all.
        """
        self._write({log: EpochHistory([(epoch, 0)]) for log in logs})

    def take_over(self, log: str, position: int, starts: Iterable[Start]) -> None:
        """Notes the epochs of a leader's bytes from a position on; see `EpochHistory.take_over`.

        Call it before each append of such bytes; most change nothing, and then nothing is written.

        Args:
            log: its name.
            position: of the first byte.
            starts: the leader's epochs that begin within the bytes.

        Raises:
            ValueError: they contradict what the log has.
            OSError: the file has its old content or the new one; do not append the bytes.
        """
        changed = EpochHistory(self.of(log).starts)
        changed.take_over(position, starts)
        if changed != self.of(log):
            self._write({log: changed})

    def cut(self, log: str, position: int) -> None:
        """Forgets the epochs that begin at or after a position.

        Call it after the log was cut: bytes of an epoch that is not noted would be taken for those of an earlier one.
        """
        changed = EpochHistory(self.of(log).starts)
        changed.cut(position)
        if changed != self.of(log):
            self._write({log: changed})

    def _write(self, changed: Mapping[str, EpochHistory]) -> None:
        every = {name: history.starts for name, history in {**self._histories, **changed}.items()}
        write_checkpoint(self._files, self._path, msgspec.msgpack.encode(every))
        self._histories |= changed
        self._is_there = True


def _epoch_of(start: Start) -> int:
    return start[0]


def _position_of(start: Start) -> int:
    return start[1]
