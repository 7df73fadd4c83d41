"""
The logs of a broker's store, as the rules of its group see them, over every closing and opening of the store.

Used by `replica` and `followers`, which open and close the store; `ClusterMember` reads ends and epochs here.
"""

from collections.abc import Mapping
from types import MappingProxyType

from headrace_mq.broker.replicas.repairs.repairs import Repairs
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.log.commit_log import COMPACT, WHOLE_LOG
from headrace_mq.store.message_store import RETENTIONS, MessageStore
from headrace_mq.store.replication.epochs import EpochFile, EpochHistory
from headrace_mq.store.replication.raw_log import RawRange

__all__ = ["StoreLog", "StoreLogs"]


class StoreLogs:
    """Which store is open, and where its logs end.

    Args:
        epochs: of the store's directory.

    Attributes:
        by_name: the logs for `ClusterMember`.
        tombstones: position of the compacted log below which tombstones may go; a leader decides it.
        repairs: of the damage in them.
    """

    def __init__(self, epochs: EpochFile) -> None:
        self.epochs = epochs
        self.repairs = Repairs(epochs)
        self._store: MessageStore | None = None
        self._keeps_back = False
        self.tombstones = 0
        self._ends: Mapping[str, int] = dict.fromkeys(RETENTIONS, 0)
        self.by_name = MappingProxyType({name: StoreLog(self, name) for name in RETENTIONS})

    @property
    def store(self) -> MessageStore:
        """The store that is open."""
        assert self._store is not None
        return self._store

    def opened(self, store: MessageStore) -> None:
        """Notes the store that is open now."""
        self._store = store
        removed = store.raw.compacted(COMPACT).forgotten
        self.tombstones = max(self.tombstones, removed)
        self.repairs.opened(store)

    def closed_at(self, ends: Mapping[str, int]) -> None:
        """Notes where the logs of the closed store end; nothing is written until one is open."""
        self._ends = dict(ends)
        self._store = None
        self.repairs.closed()

    def keep_back(self, leadership: Leadership) -> None:
        """Keeps all that a replica may lack from being thrown away, where the leader acknowledges alone.

        Call it before more is committed.
        """
        if self._store is None or not (leadership.is_ahead or self._keeps_back):
            return
        for name in self.by_name:
            position = leadership.shared(name) if leadership.is_ahead else WHOLE_LOG
            self._store.raw.keep_from(name, position)
        self._keeps_back = leadership.is_ahead

    def tail(self, log: str) -> int:
        """Returns where a log ends, with what is not on the disk yet."""
        return self._ends[log] if self._store is None else self._store.raw.tail(log)

    def end(self, log: str) -> int:
        """Returns the position of a log below which every byte is on the disk."""
        return self._ends[log] if self._store is None else self._store.raw.end(log)

    def read(self, log: str, position: int, bytes_max: int) -> RawRange:
        """Reads bytes for a replica; see `RawLog.read`. Damaged ones are noted, so that another replica is asked for them."""
        try:
            return self.store.raw.read(log, position, bytes_max)
        except DataCorrupt:
            self.repairs.suspect(log, position, bytes_max)
            raise

    def common_ends(self, epoch: int) -> Mapping[str, int]:
        """Returns for each log the position up to which it has what the leader of an epoch had; see `EpochHistory.common_end`."""
        return {name: log.history.common_end(epoch, log.end) for name, log in self.by_name.items()}

    def ends(self) -> Mapping[str, int]:
        """Returns for each log the position below which every byte is on the disk."""
        return self._ends if self._store is None else self._store.raw.ends()


class StoreLog:
    """One log."""

    def __init__(self, logs: StoreLogs, name: str) -> None:
        self._logs = logs
        self._name = name

    @property
    def end(self) -> int:
        """Where it ends, with what is not on the disk yet."""
        return self._logs.tail(self._name)

    @property
    def durable(self) -> int:
        """Below this position every byte is on the disk."""
        return self._logs.end(self._name)

    @property
    def history(self) -> EpochHistory:
        """Where its epochs begin."""
        return self._logs.epochs.of(self._name)
