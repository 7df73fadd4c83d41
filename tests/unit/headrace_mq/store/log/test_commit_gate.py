"""Written batches that wait for replicas: unseen, unanswered, and counted until they are committed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.errors import BrokerStopping, StoreFull, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.commit_gate import CommitGate, Durable
from headrace_mq.store.message_store import MessageStore

QUEUE = QueueRef("orders", 0)
SEGMENT_BYTES = 64 * 1024
FULL = OSError(28, "No space left on device")


class Held:
    """A store behind a gate, and what its readers were told."""

    def __init__(self, directory: Path, files: Any) -> None:
        self.gate = CommitGate()
        self.store = MessageStore(
            StoreSettings(directory=directory, segment_bytes=SEGMENT_BYTES),
            files=files, gate=self.gate,
        )  # fmt: skip
        self.store.open()
        self.seen: list[QueueRef] = []
        self.store.on_visible = self.seen.extend

    def append(self, batch: bytearray, retention: str = "forever") -> Durable:
        self.store.append(batch, retention=retention)
        return self.store.durable()

    async def written(self, groups: int = 1) -> None:
        """Returns when so many groups are held: a flush takes a few turns of the loop, or the thread's time."""
        while len(self.gate) < groups:
            await asyncio.sleep(0)

    def end(self, log: str = "forever") -> int:
        return self.store.segments(log)[-1].end

    def bodies(self, queue: QueueRef = QUEUE) -> list[bytes]:
        found = self.store.read(queue, 0, 1 << 20)
        return [record.body for batch in found for record in decode_records(batch)]


@pytest.fixture
async def held(tmp_path: Path, files: Any) -> AsyncIterator[Held]:
    made = Held(tmp_path / "store", files)
    yield made
    await made.store.aclose()


async def test_a_written_batch_is_seen_and_acknowledged_only_when_it_is_committed(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    done = held.append(make_batch(b"one"))
    await held.written()
    assert not done.done()
    assert held.seen == []
    assert held.store.range(QUEUE) == (0, 0)
    held.gate.reached("forever", held.end() - 1)
    assert not done.done()
    held.gate.reached("forever", held.end())
    assert done.done()
    await done
    assert held.seen == [QUEUE]
    assert held.bodies() == [b"one"]
    assert held.gate.committed("forever") == held.end()


async def test_a_batch_whose_position_was_reached_already_is_committed_at_once(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    held.gate.reached("forever", 1 << 20)
    held.gate.reached("forever", 5)
    assert held.gate.committed("forever") == 1 << 20
    await held.append(make_batch(b"one"))
    assert held.bodies() == [b"one"]


async def test_a_repeated_batch_waits_for_the_one_that_it_repeats(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    batch = make_batch(b"one", producer=7)
    first = held.append(bytearray(batch))
    await held.written()
    assert held.store.append(bytearray(batch), retention="forever").duplicate
    again = held.store.durable()
    assert not again.done()
    held.gate.reached("forever", held.end())
    await asyncio.gather(first, again)


async def test_a_repeat_waits_even_if_the_first_one_had_no_waiter(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    held.store.append(make_batch(b"one", producer=7), retention="forever")
    await held.written()
    again = held.store.durable()
    assert held.store.durable() is again
    assert not again.done()
    held.gate.reached("forever", held.end())
    await again


async def test_flushes_are_committed_in_order_across_logs(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    first = held.append(make_batch(b"one"))
    await held.written()
    second = held.append(make_batch(b"two", queue=1), "transient")
    await held.written(2)
    held.gate.reached("transient", held.end("transient"))
    assert not second.done()
    held.gate.reached("forever", held.end())
    await asyncio.gather(first, second)


async def test_offsets_go_on_behind_what_is_held_when_a_full_disk_withdraws_a_batch(
    held: Held, make_batch: Callable[..., bytearray], files: Any
) -> None:
    kept = held.append(make_batch(b"kept"))
    await held.written()
    files.write_error = FULL
    refused = held.append(make_batch(b"refused"))
    with pytest.raises(StoreFull):
        await refused
    files.write_error = None
    assert held.store.append(make_batch(b"next"), retention="forever").base_offset == 1
    following = held.store.durable()
    await held.written(2)
    held.gate.reached("forever", held.end())
    await asyncio.gather(kept, following)
    assert held.bodies() == [b"kept", b"next"]


async def test_a_segment_is_neither_sealed_nor_deleted_before_it_is_committed(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    waits = []
    for number in range(4):
        waits.append(held.append(make_batch(bytes(30_000))))
        await held.written(number + 1)
    ends = [info.end for info in held.store.segments("forever")]
    assert len(ends) > 1
    assert not any(info.sealed for info in held.store.segments("forever"))
    assert held.store.delete_segments("forever", before=ends[-1]) == 0
    held.gate.reached("forever", ends[0])
    infos = held.store.segments("forever")
    assert [info.sealed for info in infos] == [True] + [False] * (len(ends) - 1)
    # Its facts are whole although the next segment has no committed batch yet.
    assert infos[0].next_offsets[QUEUE] == held.store.range(QUEUE)[1] > 0
    held.gate.reached("forever", ends[-1])
    await asyncio.gather(*waits)
    assert held.store.delete_segments("forever", before=ends[-1]) == len(ends) - 1


async def test_a_committed_segment_is_deleted_while_the_first_batch_behind_it_waits(
    held: Held, make_batch: Callable[..., bytearray], tmp_path: Path
) -> None:
    waits = []
    for number in range(3):
        waits.append(held.append(make_batch(b"%d" % number * 30_000)))
        await held.written(number + 1)
    first = held.store.segments("forever")[0].end
    held.gate.reached("forever", first)
    begin = held.store.range(QUEUE)[1]
    assert held.store.delete_segments("forever", before=first) == 1
    (info,) = held.store.segments("forever")
    assert (info.base, info.sealed, info.next_offsets) == (first, False, {})
    assert held.store.range(QUEUE) == (begin, begin)
    held.gate.reached("forever", held.end())
    await asyncio.gather(*waits)
    assert held.store.range(QUEUE) == (begin, 3)
    found = held.store.read(QUEUE, begin, 1 << 20)
    assert [one.body[:1] for batch in found for one in decode_records(batch)] == [b"2"]
    await held.store.aclose()
    again = MessageStore(StoreSettings(directory=tmp_path / "store", segment_bytes=SEGMENT_BYTES))
    again.open()
    assert again.range(QUEUE) == (begin, 3)
    await again.aclose()


async def test_held_bytes_count_until_they_are_committed(
    held: Held, make_batch: Callable[..., bytearray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_mq.store.message_store.STAGED_BYTES_MAX", 5_000)
    waits = held.append(make_batch(bytes(3_000)))
    await held.written()
    with pytest.raises(StoreFull, match="wait for the disk"):
        held.append(make_batch(bytes(3_000)))
    held.gate.reached("forever", held.end())
    await waits
    held.append(make_batch(bytes(3_000)))


async def test_waiters_hear_at_the_close_that_the_outcome_is_unknown(
    tmp_path: Path, files: Any, make_batch: Callable[..., bytearray]
) -> None:
    held = Held(tmp_path / "store", files)
    waits = held.append(make_batch(b"held"))
    await held.written()
    staged = held.append(make_batch(b"staged"))
    await held.store.aclose()
    for future in (waits, staged):
        with pytest.raises(BrokerStopping, match="may be stored or not"):
            await future
    again = Held(tmp_path / "store", files)
    # The start finds everything that was written; a group decides before it serves anyone.
    assert again.bodies() == [b"held", b"staged"]
    await again.store.aclose()


async def test_a_waiter_hears_when_all_in_sync_have_the_logs_or_the_term_ends(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    raw = held.store.raw
    await raw.shared()
    held.append(make_batch(b"one"))
    await held.written()
    held.gate.reached("forever", held.end())
    raw.keep_from("forever", held.end() - 1)
    first = raw.shared()
    assert not first.done()
    raw.keep_from("forever", held.end())
    await first
    raw.keep_from("forever", 0)
    second = raw.shared()
    held.gate.close()
    for waits in (second, raw.shared()):
        with pytest.raises(BrokerStopping, match="all in sync"):
            await waits


async def test_the_owner_hears_of_each_flush_that_is_held(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    ends: list[int] = []
    held.gate.on_held = lambda: ends.append(held.end())
    held.append(make_batch(b"one"))
    await held.written()
    assert ends == [held.end()]
    held.gate.reached("forever", held.end())


async def test_an_owner_that_fails_stops_no_flush(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    def fail() -> None:
        raise RuntimeError("a defect of the owner")

    held.gate.on_written = held.gate.on_held = fail
    with capture_logs() as lines:
        for number in range(3):
            done = held.append(make_batch(b"%d" % number))
            await held.written()
            held.gate.reached("forever", held.end())
            await done
    assert held.bodies() == [b"0", b"1", b"2"]
    # The first group makes a segment, and is read by replicas once it is synced.
    assert len(lines) == 5
    assert all(line["exc_info"] for line in lines)


async def test_a_reader_that_fails_stops_no_flush(
    held: Held, make_batch: Callable[..., bytearray]
) -> None:
    def fail(_: object) -> None:
        held.store.on_visible = held.seen.extend
        raise RuntimeError("a defect of a reader")

    held.gate.reached("forever", SEGMENT_BYTES)
    held.store.on_visible = fail
    # In the thread, so that the second batch waits for the end of the first one's flush.
    held.store._flusher._inline = False
    first = held.append(make_batch(b"0"))
    await asyncio.sleep(0)
    second = held.append(make_batch(b"1"))
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    await asyncio.wait_for(asyncio.gather(first, second), 20)
    assert held.bodies() == [b"0", b"1"]


async def test_only_synced_groups_can_be_held(tmp_path: Path, files: Any) -> None:
    settings = StoreSettings(directory=tmp_path / "store", flush="interval")
    with pytest.raises(ValueError, match="always"):
        MessageStore(settings, files=files, gate=CommitGate())


async def one_held(held: Held, make_batch: Callable[..., bytearray]) -> int:
    """Appends the first batch, which makes the segment, and returns where it ends."""
    done = held.append(make_batch(b"first"))
    await held.written()
    held.gate.reached("forever", held.end())
    await done
    return held.end()


@pytest.mark.parametrize("sync_us", [0, 60_000])
async def test_replicas_can_read_a_batch_before_the_disk_has_it(
    held: Held, make_batch: Callable[..., bytearray], files: Any, sync_us: int
) -> None:
    files.sync_us = sync_us
    first = await one_held(held, make_batch)
    seen: list[tuple[int, int]] = []

    def note() -> None:
        raw = held.store.raw
        read = raw.read("forever", first, 1 << 20)
        seen.append((raw.ends()["forever"], first + len(read.data)))

    held.gate.on_written = note
    syncs = files.syncs
    done = held.append(make_batch(b"second"))
    await held.written()
    # The durable end was still the first batch's; what replicas read went on to the second one's.
    assert seen == [(first, held.end())]
    assert files.syncs == syncs + 1
    assert held.store.raw.ends()["forever"] == held.end()
    held.gate.reached("forever", held.end())
    await done


async def test_a_batch_that_the_disk_lost_after_replicas_read_it_is_never_durable(
    held: Held, make_batch: Callable[..., bytearray], files: Any
) -> None:
    first = await one_held(held, make_batch)
    files.sync_error = OSError(5, "Input/output error")
    done = held.append(make_batch(b"second"))
    with pytest.raises(StoreReadOnly):
        await done
    assert held.store.raw.ends()["forever"] == first
    # Its position is used by no other batch: replicas may have it.
    files.sync_error = None
    with pytest.raises(StoreReadOnly):
        held.append(make_batch(b"third"))


async def test_replicas_never_read_a_batch_that_a_full_disk_refused(
    held: Held, make_batch: Callable[..., bytearray], files: Any
) -> None:
    first = await one_held(held, make_batch)
    files.write_error = FULL
    with pytest.raises(StoreFull):
        await held.append(make_batch(b"refused"))
    files.write_error = None
    assert held.store.raw.written("forever") == first
    assert held.store.raw.read("forever", first, 1 << 20).data == b""
