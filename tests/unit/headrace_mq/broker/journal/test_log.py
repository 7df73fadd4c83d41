"""A journal, here the transactions', as a broker follows it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.broker.journal.log import JournalFormat, JournalLog
from headrace_mq.broker.metadata import transactions_file
from headrace_mq.broker.transactions.journal import Checked, Done, own_record, read_event
from headrace_mq.broker.transactions.undecided import KeptTransactions, Transactions
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.transactions import TRANSACTION_QUEUE, Bundle, BundlePart
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

FORM = JournalFormat("transactions", TRANSACTION_QUEUE, read_event, own_record)
Open = Callable[..., tuple[JournalLog, Transactions, MessageStore]]


@pytest.fixture
async def store(tmp_path: Path, clock: Any) -> AsyncIterator[MessageStore]:
    made = MessageStore(StoreSettings(directory=tmp_path, segment_bytes=64 << 10), clock=clock)
    made.open()
    yield made
    await made.aclose()


@pytest.fixture
def follow(store: MessageStore, tmp_path: Path, clock: Any) -> Open:
    def make(**form: int) -> tuple[JournalLog, Transactions, MessageStore]:
        state = Transactions(6_000)
        log = JournalLog(
            store, transactions_file(tmp_path), clock=clock, state=state, form=FORM._replace(**form)
        )
        log.restore()
        log.follow()
        return log, state, store

    return make


async def put(store: MessageStore, *bodies: bytes) -> None:
    batch = encode_batch(TRANSACTION_QUEUE, Columns([], [], [], list(bodies), []), born_first_ms=1)
    store.append(batch, retention="transient")
    await store.durable()


def bundle() -> bytes:
    return encode(Bundle("g", "c", ["a", "b"], [BundlePart(b"batch", [0])]))


async def test_new_records_are_applied_once(follow: Open) -> None:
    log, state, store = follow()
    await put(store, bundle(), bundle())
    log.follow()
    log.follow()
    assert (state.undecided, state.read_to) == (4, 2)
    log.append(Checked(0, 1, 99), Done())
    await store.durable()
    log.follow()
    assert state.read_to == 4
    pending = state.find(0)
    assert pending is not None
    assert pending.checks == 1


async def test_a_start_goes_on_where_the_state_was_kept(follow: Open) -> None:
    log, _, store = follow()
    await put(store, bundle())
    log.follow()
    await log.keep()
    assert log.kept_to == 0
    log.keep_now = True
    await log.keep()
    assert log.kept_to == 1
    await put(store, bundle())
    again, state, _ = follow()
    assert (again.kept_to, state.read_to, state.undecided) == (1, 2, 4)


@pytest.mark.parametrize(
    ("form", "kept_to"),
    [
        ({"keep_records": 2}, 2),
        ({"keep_records": 3}, 0),
        ({"keep_bytes": 1}, 2),
        ({"keep_bytes": 1 << 20}, 0),
    ],
)
async def test_the_state_is_kept_after_so_many_records_or_bytes(
    follow: Open, form: dict[str, int], kept_to: int
) -> None:
    log, _, store = follow(**form)
    await put(store, bundle(), bundle())
    log.follow()
    await log.keep()
    assert log.kept_to == kept_to


async def test_a_kept_state_that_the_journal_does_not_go_on_from_is_not_used(
    follow: Open, tmp_path: Path
) -> None:
    _, _, store = follow()
    await put(store, bundle())
    transactions_file(tmp_path).write(KeptTransactions(99, [], [], None))
    log, state, _ = follow()
    assert (log.kept_to, state.read_to, state.undecided) == (0, 1, 2)


async def test_a_start_within_a_batch_applies_only_what_is_behind_it(
    follow: Open, tmp_path: Path
) -> None:
    _, _, store = follow()
    await put(store, bundle(), bundle())
    transactions_file(tmp_path).write(KeptTransactions(1, [], [], None))
    _, state, _ = follow()
    assert (state.read_to, state.undecided) == (2, 2)
    assert state.find(0) is None


async def test_a_record_that_means_nothing_is_left_out_and_told(follow: Open) -> None:
    log, state, store = follow()
    await put(store, b"junk")
    await put(store, bundle())
    with capture_logs() as logs:
        log.follow()
    assert (state.undecided, state.read_to) == (2, 2)
    assert [entry["log_level"] for entry in logs] == ["error"]


async def test_a_file_that_cannot_be_written_is_no_failure(
    follow: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _, store = follow()
    await put(store, bundle())
    log.follow()

    def full(_: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(log._file, "write", full)
    await log.keep(always=True)
    assert log.kept_to == 0
