"""Picked messages on the wire."""

import google_crc32c
import msgspec
import pytest

from headrace_mq.errors import CorruptBatch, DataCorrupt
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.bodies import Picked
from headrace_mq.protocol.filter.picks import Pick, picked, picked_records

QUEUE = QueueRef("t", 3)
PICKS = [
    Pick(5, "k", "", msgspec.Raw(b"\x80"), b"a", 1, 3, 7),
    Pick(9, "", "x", msgspec.Raw(b"\x81\xa1n\xa11"), b"b", 2, 4, 8),
]
COLUMNS = [[5, 9], ["k", ""], ["", "x"], [{}, {"n": "1"}], [b"a", b"b"], [1, 2], [3, 4], [7, 8]]


def column(number: int, entries: list[object]) -> list[list[object]]:
    """The columns of the picks, but for one."""
    return [*COLUMNS[:number], entries, *COLUMNS[number + 1 :]]


def test_picks_come_as_records() -> None:
    assert picked_records(picked(QUEUE, PICKS)) == [
        Record(QUEUE, 5, "k", "", {}, b"a", 1, 3, 7),
        Record(QUEUE, 9, "", "x", {"n": "1"}, b"b", 2, 4, 8),
    ]


@pytest.mark.parametrize("at", [0, 5, 20])
def test_a_flipped_bit_is_seen(at: int) -> None:
    sound = picked(QUEUE, PICKS)
    damaged = bytearray(sound.messages)
    damaged[at] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        picked_records(Picked("t", 3, sound.checksum, bytes(damaged)))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (column(1, ["k"]), "differ in length"),
        ([[]] * 8, "or are empty"),
        (column(0, [5, 5]), "in order"),
        (column(0, ["x", "y"]), "do not decode"),
    ],
)
def test_bytes_that_are_no_list_of_messages_are_corrupt(
    wrong: list[list[object]], sentence: str
) -> None:
    messages = msgspec.msgpack.encode(wrong)
    with pytest.raises(DataCorrupt, match=sentence):
        picked_records(Picked("t", 3, google_crc32c.value(messages), messages))


def test_other_bytes_with_their_own_checksum_are_corrupt() -> None:
    for messages in (b"", b"\xc1", msgspec.msgpack.encode([1, 2])):
        with pytest.raises(DataCorrupt):
            picked_records(Picked("t", 3, google_crc32c.value(messages), messages))
