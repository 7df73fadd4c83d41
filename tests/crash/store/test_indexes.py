"""What stands beside segments may be cut, torn, flipped, stale or gone: nobody reads differently."""

import contextlib
import errno
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.check.inspection import check
from headrace_mq.store.log.lookup import LookupQuery
from headrace_mq.store.message_store import MessageStore

QUEUES = [QueueRef("t", number) for number in range(3)]
KEYS = [f"key-{number}" for number in range(9)]
SEGMENT_BYTES = 64 << 10
BLOCK_BYTES = 12_000
DERIVED = (".index", ".keys")


def opened(directory: Path, files: Any = None) -> MessageStore:
    store = MessageStore(
        StoreSettings(directory=directory, segment_bytes=SEGMENT_BYTES),
        files=files,
        index_block_bytes=BLOCK_BYTES,
    )
    store.open()
    for log in store._logs.values():
        log.keys._block_bytes = BLOCK_BYTES
    return store


def index_keys(store: MessageStore) -> None:
    for log in store._logs.values():
        while log.keys.step(log.end, 8_000) or log.keys.due(log.synced) is not None:
            log.keys.write_due(log.synced)


async def send(store: MessageStore, first: int, count: int) -> None:
    for n in range(first, first + count):
        keys = [KEYS[n % len(KEYS)], ""]
        columns = Columns(keys, [], [], [b"%d" % n * 100, b"x" * 300], [])
        store.append(encode_batch(QUEUES[n % 3], columns, born_first_ms=0), retention="transient")
        await store.durable()
        await store._writer.settled()


Seen = dict[object, list[tuple[int, int, bytes]]]


def seen(store: MessageStore, *, indexed: bool = True) -> Seen:
    """Everything that readers and searches see."""
    if indexed:
        index_keys(store)
    found: Seen = {}
    for queue in QUEUES:
        at, end = store.range(queue)
        found[queue] = []
        while at < end and (batches := store.read(queue, at, 4_000)):
            records = [record for batch in batches for record in decode_records(batch)]
            found[queue] += [(queue.queue_id, r.offset, r.body) for r in records]
            at = records[-1].offset + 1
    for key in KEYS:
        found[key], cursor = [], None
        while True:
            answer = store.find(LookupQuery("t", key), cursor)
            records = [record for batch in answer.batches for record in decode_records(batch)]
            found[key] += [(r.queue.queue_id, r.offset, r.body) for r in records if r.key == key]
            if answer.cursor is None:
                break
            cursor = answer.cursor
    return found


@pytest.fixture
async def sound(tmp_path: Path) -> Path:
    """A closed store of three segments with all their indexes."""
    store = opened(tmp_path / "sound")
    await send(store, 0, 200)
    index_keys(store)
    await store.aclose()
    assert len(list((tmp_path / "sound/transient").glob("*.keys"))) == 3
    return tmp_path / "sound"


def ruins(sound: Path, chance: random.Random) -> Iterator[tuple[str, Path, bytes | None]]:
    """Yields what may become of each file: how, which, and its content; None: it is gone."""
    for suffix in DERIVED:
        first, second, *_ = sorted((sound / "transient").glob(f"*{suffix}"))
        good = first.read_bytes()
        yield "gone", first, None
        yield "empty", first, b""
        yield "another segment's", first, second.read_bytes()
        yield "random", first, chance.randbytes(len(good))
        for _ in range(2):
            yield "cut", first, good[: chance.randrange(len(good))]
            yield "longer", first, good + chance.randbytes(chance.randrange(1, 900))
            torn = bytearray(good)
            for at in range(0, len(torn), 512):
                if chance.random() < 0.3:
                    torn[at : at + 512] = bytes(len(torn[at : at + 512]))
            yield "torn", first, bytes(torn)


async def test_a_damaged_index_changes_no_read_and_no_search(
    sound: Path, figures: Callable[..., None]
) -> None:
    store = opened(sound)
    expected = seen(store)
    await store.aclose()
    assert sum(map(len, expected.values())) == 2 * 200 + 200
    chance = random.Random(11)
    ends: Counter[str] = Counter()
    for how, path, content in ruins(sound, chance):
        good = path.read_bytes()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        store = opened(sound)
        # First as it is, with what is missing scanned; then made again.
        assert seen(store, indexed=False) == expected, how
        assert seen(store) == expected, how
        assert store.damage == []
        await store.aclose()
        assert check(sound, metadata={}).findings == [], how
        path.write_bytes(good)
        ends[how] += 1
    figures("ruined indexes", **ends)


async def test_no_flipped_byte_of_keys_changes_what_is_found(
    sound: Path, figures: Callable[..., None], thorough: bool
) -> None:
    path = min((sound / "transient").glob("*.keys"))
    good = path.read_bytes()
    store = opened(sound)
    expected = seen(store)
    await store.aclose()
    chance = random.Random(12)
    flips = range(len(good)) if thorough else chance.sample(range(len(good)), 15)
    for at in flips:
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :])
        store = opened(sound)
        assert seen(store, indexed=False) == expected, at
        store._release()
    figures("flipped bytes of keys", flips=len(flips), wrong_results=0)


async def test_a_disk_that_refuses_indexes_changes_nothing(
    tmp_path: Path, faulty_files: Any, figures: Callable[..., None]
) -> None:
    refused = 0

    def full(step: int, kind: str) -> None:
        nonlocal refused
        if "derived" in kind and step % 3:
            refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    files = faulty_files(full)
    files.torn_bytes = 500
    store = opened(tmp_path / "full", files)
    await send(store, 0, 120)
    while any(log.keys.step(log.end, 8_000) for log in store._logs.values()):
        store._writer.step()
        await store._writer.settled()
    found = seen(store, indexed=False)
    assert sum(len(found[queue]) for queue in QUEUES) == 240
    assert refused > 3
    await store.aclose()
    files.abandon()
    store = opened(tmp_path / "full")
    assert seen(store) == found
    await store.aclose()
    figures("refused indexes", refused=refused)


async def test_a_power_cut_at_any_change_of_a_deletion_leaves_all_or_what_is_kept(
    sound: Path,
    tmp_path: Path,
    power_cut_files: Callable[[Path], Any],
    rounds: Callable[[int], int],
    figures: Callable[..., None],
) -> None:
    store = opened(sound)
    whole = seen(store)
    base = store.segments("transient")[1].base
    ends = {queue: store.range(queue)[1] for queue in QUEUES}
    store.delete_segments("transient", base)
    kept = {queue: store.range(queue) for queue in QUEUES}
    store._release()
    shutil.rmtree(sound)
    store = opened(sound)
    await send(store, 0, 200)
    index_keys(store)
    await store.aclose()
    ends_seen: Counter[str] = Counter()
    cuts = 0
    while True:
        cuts += 1
        directory = tmp_path / f"cut-{cuts}"
        shutil.copytree(sound, directory)
        files = power_cut_files(directory)
        store = opened(directory, files)
        files.cut_at = files.steps + cuts
        # Whatever it says without power.
        with contextlib.suppress(Exception):
            store.delete_segments("transient", base)
        done = not files.dead
        files.dead = True
        for seed in range(rounds(1)):
            image = tmp_path / f"image-{cuts}-{seed}"
            files.image(image, random.Random(seed))
            again = opened(image)
            ranges = {queue: again.range(queue) for queue in QUEUES}
            assert {queue: end for queue, (_, end) in ranges.items()} == ends
            deleted = ranges == kept
            assert deleted or ranges == {queue: (0, end) for queue, end in ends.items()}
            found = seen(again)
            for name, messages in found.items():
                first = {queue.queue_id: ranges[queue][0] for queue in QUEUES}
                assert messages == [one for one in whole[name] if one[1] >= first[one[0]]]
            assert again.damage == []
            ends_seen["deleted" if deleted else "whole"] += 1
            # What was begun is finished by the start.
            names = {path.stem for path in (image / "transient").iterdir()}
            assert ("00000000000000000000" in names) != deleted
            again._release()
            shutil.rmtree(image)
        files.abandon()
        shutil.rmtree(directory)
        if done:
            break
    assert cuts > 5
    assert set(ends_seen) == {"deleted", "whole"}
    figures("power cuts in a deletion", cuts=cuts, **ends_seen)
