"""What a compaction keeps: the newest record of each key, whatever fits into memory."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns
from headrace_mq.store.compaction.latest_keys import ENTRY_BYTES, LatestKeys, is_tombstone

QUEUE = QueueRef("t", 0)


def columns(keys: list[str], bodies: list[bytes] | None = None) -> Columns:
    return Columns(keys, [], [], bodies or [b"x"] * len(keys), [])


def kept(latest: LatestKeys, keys: list[str], *, bodies: list[bytes] | None = None) -> list[int]:
    return latest.kept(
        QUEUE, range(len(keys)), columns(keys, bodies), floor=0, drop_tombstones=True
    )


@given(st.lists(st.sampled_from("abcde"), min_size=1), st.integers(1, 4))
def test_of_each_key_the_newest_record_stays_in_however_many_parts(
    keys: list[str], parts: int
) -> None:
    left = list(range(len(keys)))
    for part in range(parts):
        latest = LatestKeys(1 << 20, part=part, parts=parts)
        latest.note(QUEUE, keys, range(len(keys)))
        stays = latest.kept(
            QUEUE, left, columns([keys[at] for at in left]), floor=0, drop_tombstones=False
        )
        left = [left[at] for at in stays]
    assert left == sorted({key: at for at, key in enumerate(keys)}.values())


@given(st.lists(st.sampled_from("abcde"), min_size=1), st.integers(0, 50))
def test_records_with_keys_that_did_not_fit_stay(keys: list[str], noted: int) -> None:
    latest = LatestKeys(1 << 20)
    latest.note(QUEUE, keys[:noted], range(len(keys))[:noted])
    left = kept(latest, keys)
    newest = {key: at for at, key in enumerate(keys)}
    assert set(newest.values()) <= set(left)


def test_a_key_of_one_queue_says_nothing_of_another() -> None:
    latest = LatestKeys(1 << 20)
    latest.note(QueueRef("t", 1), ["a"], [100])
    assert kept(latest, ["a"]) == [0]


def test_records_without_a_key_stay() -> None:
    latest = LatestKeys(1 << 20)
    latest.note(QUEUE, ["", "a", ""], [5, 6, 7])
    assert kept(latest, ["", "a", ""]) == [0, 2]
    assert latest.kept(QUEUE, [3, 4], columns([], [b"", b""]), floor=4, drop_tombstones=True) == [1]


def test_a_record_that_deletes_its_key_goes_when_it_was_there_long_enough() -> None:
    latest = LatestKeys(1 << 20)
    asked = columns(["a", "b"], [b"", b"x"])
    assert latest.kept(QUEUE, [0, 1], asked, floor=0, drop_tombstones=False) == [0, 1]
    assert latest.kept(QUEUE, [0, 1], asked, floor=0, drop_tombstones=True) == [1]
    assert is_tombstone("a", b"")
    assert not is_tombstone("", b"")
    assert not is_tombstone("a", b"0")


def test_records_of_a_deleted_queue_are_removed() -> None:
    latest = LatestKeys(1 << 20)
    asked = columns(["a", "b"])
    assert latest.kept(QUEUE, [8, 9], asked, floor=9, drop_tombstones=False) == [1]


def test_memory_counts_each_key_once() -> None:
    latest = LatestKeys(3 * (ENTRY_BYTES + 4))
    for _ in range(5):
        latest.note(QUEUE, ["key1", "key2"], [1, 2])
    assert latest.bytes == 2 * (ENTRY_BYTES + 4)
    assert not latest.is_full
    latest.note(QUEUE, ["key3"], [3])
    assert latest.is_full
