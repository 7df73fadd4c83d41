"""
A journal as the broker follows it: read at a start, then as it grows.

The state is memory, kept in a file now and then, so that a start reads only the journal behind it.
The journal alone tells the same.

Used by `worker`; uses the store, the kept file and the state.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.journal.batches import JournalStore
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    Columns,
    decode_columns,
    encode_batch,
    read_header,
)

__all__ = ["LOG", "JournalFormat", "JournalLog", "JournalState"]

_log = get_logger(__name__)

# The log of the store that both journals are in.
LOG = "transient"
READ_BYTES = 1 << 20


class JournalState(Protocol):
    """What a journal tells: its records, applied in order, always come to the same.

    Attributes:
        read_to: the journal offset below which everything is applied.
        unfinished: the last order, until it is known to be carried out.
    """

    read_to: int
    unfinished: Any

    def apply(self, event: Any) -> None:
        """Takes over one record of the journal; `read_to` stays the caller's."""
        ...

    def kept(self) -> Any:
        """Everything that the journal told so far, with `read_to`; later records change nothing of it."""
        ...

    def restore(self, kept: Any) -> None:
        """Takes over what `kept` returned. Raises ValueError for anything else, and changes nothing."""
        ...

    def lowest_offset(self) -> int | None:
        """The lowest journal offset that is still to be read; None where there is none."""
        ...


class JournalFormat(NamedTuple):
    """What one journal is called and how its records are written and read.

    Attributes:
        name: in log lines.
        queue: that holds it.
        read: the event that the record at an index of a batch tells; raises DataCorrupt.
        write: the columns of a batch that holds events of the broker's own.
        keep_records, keep_bytes: records or bytes behind the kept state from which on it is kept again.
    """

    name: str
    queue: QueueRef
    read: Callable[[BatchHeader, Columns, int], Any]
    write: Callable[..., Columns]
    keep_records: int = sys.maxsize
    keep_bytes: int = sys.maxsize


class JournalLog:
    """The journal, and what it tells.

    Args:
        store: holds the journal.
        file: keeps the state.
        clock: tells when the broker's own records are born.
        state: follows the journal.
        form: of the journal's records.

    Attributes:
        name: of the journal, for log lines.
        queue: that holds it.
        keep_now: write the state at the next occasion.
        kept_to: the journal offset from which a start reads.
    """

    def __init__(
        self,
        store: JournalStore,
        file: MetadataFile[Any],
        *,
        clock: Clock,
        state: JournalState,
        form: JournalFormat,
    ) -> None:
        self._store = store
        self._file = file
        self._clock = clock
        self._state = state
        self._form = form
        self.name, self.queue = form.name, form.queue
        self._unkept_bytes = 0
        self.keep_now = False
        self.kept_to = 0

    def restore(self) -> None:
        """Reads the kept state, where there is one that the journal still goes on from.

        Raises:
            FormatTooNew: a newer version wrote the file.
        """
        first, end = self._store.range(self.queue)
        try:
            kept = self._file.read()
            if kept is not None and first <= kept.read_to <= end:
                self._state.restore(kept)
                self.kept_to = kept.read_to
        except (DataCorrupt, ValueError) as error:
            _log.warning(
                "the state file of a journal cannot be read; the broker reads the whole journal",
                journal=self.name, reason=str(error),
            )  # fmt: skip

    def follow(self) -> None:
        """Applies the records that are new; blocks until they are read."""
        state = self._state
        while True:
            first, end = self._store.range(self.queue)
            state.read_to = max(state.read_to, first)
            if state.read_to >= end:
                return
            batches = self._store.read(self.queue, state.read_to, READ_BYTES)
            for batch in batches:
                self._apply(batch)
            if not batches:
                state.read_to = end

    def append(self, *events: Any) -> None:
        """Appends records of the broker's own. Raises StoreFull, StoreReadOnly."""
        self.append_columns(self._form.write(*events), born_ms=self._clock.now_ms())

    def append_columns(self, columns: Columns, *, born_ms: int) -> None:
        """Appends records as they are. Raises StoreFull, StoreReadOnly."""
        batch = encode_batch(self.queue, columns, born_first_ms=born_ms)
        self._store.append(batch, retention=LOG)

    async def keep(self, *, always: bool = False) -> None:
        """Writes the state, where it is time to or `always`, so that a start reads from here on."""
        records = self._state.read_to - self.kept_to
        is_far = records >= self._form.keep_records or self._unkept_bytes >= self._form.keep_bytes
        if not (always or self.keep_now or is_far):
            return
        self.keep_now = False
        if not records:
            return
        kept, self._unkept_bytes = self._state.kept(), 0
        try:
            await asyncio.to_thread(self._file.write, kept)
        except OSError as error:
            _log.warning(
                "the state file of a journal could not be written; the next start takes longer",
                journal=self.name, reason=str(error),
            )  # fmt: skip
            return
        self.kept_to = kept.read_to

    def _apply(self, batch: bytes | memoryview) -> None:
        header = read_header(batch)
        self._unkept_bytes += header.length
        try:
            columns = decode_columns(batch, header)
            for offset in range(max(header.base_offset, self._state.read_to), header.next_offset):
                self._state.apply(self._form.read(header, columns, offset - header.base_offset))
        except (DataCorrupt, FormatTooNew) as error:
            _log.error(
                "a record of a journal cannot be read and is skipped",
                journal=self.name,
                reason=str(error),
            )
        self._state.read_to = header.next_offset
