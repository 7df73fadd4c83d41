"""
The journal of transactions as the broker follows it: read at a start, then as it grows.

The state is memory, kept in `transactions.json` now and then, so that a start reads only the journal
behind it. The journal alone tells the same.

Sits between: `coordinator`, and the store, the kept file and the state in `undecided`.
"""

import asyncio

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.schedule.delivery import SchedulingStore
from headrace_mq.broker.transactions.journal import Checked, Decided, Done, own_record, read_event
from headrace_mq.broker.transactions.undecided import KeptTransactions, Transactions
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.protocol.batch import decode_columns, encode_batch, read_header
from headrace_mq.protocol.transactions import TRANSACTION_QUEUE

__all__ = ["LOG", "TransactionLog"]

_log = get_logger(__name__)

LOG = "transient"
# Journal bytes behind the kept state: what a start after a crash reads, about a second.
KEEP_BYTES = 256 << 20
READ_BYTES = 1 << 20


class TransactionLog:
    """The journal, and what it tells.

    Args:
        store: holds the journal.
        file: keeps the state.
        clock: tells when the broker's own records are born.
        state: follows the journal.

    Attributes:
        keep_now: write the state at the next occasion.
        kept_to: the journal offset from which a start reads.
    """

    def __init__(
        self,
        store: SchedulingStore,
        file: MetadataFile[KeptTransactions],
        *,
        clock: Clock,
        state: Transactions,
    ) -> None:
        self._store = store
        self._file = file
        self._clock = clock
        self._state = state
        self._unkept_bytes = 0
        self.keep_now = False
        self.kept_to = 0

    def load(self) -> None:
        """Reads the kept state and the journal behind it; blocks until that is done.

        Raises:
            FormatTooNew: a newer version wrote the file.
        """
        first, end = self._store.range(TRANSACTION_QUEUE)
        try:
            kept = self._file.read()
        except DataCorrupt as error:
            _log.warning("kept transactions are read from their journal instead", reason=str(error))
        else:
            if kept is not None and first <= kept.read_to <= end:
                self._state.restore(kept)
                self.kept_to = kept.read_to
        self.follow()
        _log.info("transactions are read", undecided=self._state.undecided, journal=end)

    def follow(self) -> None:
        """Applies the records that are new."""
        state = self._state
        while True:
            first, end = self._store.range(TRANSACTION_QUEUE)
            state.read_to = max(state.read_to, first)
            if state.read_to >= end:
                return
            batches = self._store.read(TRANSACTION_QUEUE, state.read_to, READ_BYTES)
            for batch in batches:
                self._apply(batch)
            if not batches:
                state.read_to = end

    def append(self, *events: Decided | Done | Checked) -> None:
        """Appends records of the broker's own. Raises StoreFull, StoreReadOnly."""
        columns = own_record(*events)
        batch = encode_batch(TRANSACTION_QUEUE, columns, born_first_ms=self._clock.now_ms())
        self._store.append(batch, retention=LOG)

    async def keep(self, *, always: bool = False) -> None:
        """Writes the state, where it is time to or `always`, so that a start reads from here on."""
        if not (always or self.keep_now or self._unkept_bytes >= KEEP_BYTES):
            return
        self.keep_now = False
        if self._state.read_to == self.kept_to:
            return
        kept, self._unkept_bytes = self._state.kept(), 0
        try:
            await asyncio.to_thread(self._file.write, kept)
        except OSError as error:
            _log.warning("transactions could not be kept; a start reads more", reason=str(error))
            return
        self.kept_to = kept.read_to

    def _apply(self, batch: bytes | memoryview) -> None:
        header = read_header(batch)
        self._unkept_bytes += header.length
        try:
            columns = decode_columns(batch, header)
            for offset in range(max(header.base_offset, self._state.read_to), header.next_offset):
                self._state.apply(read_event(header, columns, offset - header.base_offset))
        except (DataCorrupt, FormatTooNew) as error:
            _log.error("a record of the transactions is left out", reason=str(error))
        self._state.read_to = header.next_offset
