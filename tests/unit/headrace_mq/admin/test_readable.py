"""Batches for those who look: a record that says so where no reader can decode one."""

import pytest

from headrace_mq.admin.readable import readable_records, stored_batch
from headrace_mq.client.fetch.damage import DAMAGE_HEADER, is_marker
from headrace_mq.errors import CorruptBatch
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.testing.hostile import hostile_batches

QUEUE = QueueRef("t", 0)


def test_a_sound_batch_is_its_records() -> None:
    batch = memoryview(encode_batch(QUEUE, Columns([], [], [], [b"a", b"b"], []), born_first_ms=1))
    assert [record.body for record in readable_records(batch)] == [b"a", b"b"]
    assert stored_batch(batch).damage == ""


def test_a_batch_that_cannot_be_decoded_is_one_record_that_says_so() -> None:
    batch = memoryview(hostile_batches(QUEUE)["numbers for keys"])
    (marker,) = readable_records(batch)
    assert is_marker(marker)
    assert marker.offset == 2
    assert "from offset 0 to 2 cannot be read" in marker.headers[DAMAGE_HEADER]
    assert "does not decode" in stored_batch(batch).damage


def test_a_batch_that_was_damaged_on_the_way_is_an_error() -> None:
    batch = bytearray(hostile_batches(QUEUE)["numbers for keys"])
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        readable_records(memoryview(batch))
