"""Hostile batches are what they say: checksums that are right, and nothing that decodes."""

import random

import pytest

from headrace_mq.errors import UndecodableBatch
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    Columns,
    check_whole,
    decode_columns,
    encode_batch,
)
from headrace_mq.testing.hostile import REFUSED, UNSEEN, hostile_batches, mutated

QUEUE = QueueRef("t", 3)


def test_every_kind_has_a_right_checksum_and_cannot_be_decoded() -> None:
    found = hostile_batches(QUEUE)
    assert list(found) == [*REFUSED, *UNSEEN]
    for batch in found.values():
        header = check_whole(batch)
        assert header.queue == QUEUE
        with pytest.raises(UndecodableBatch):
            decode_columns(batch, header)


def test_a_mutated_batch_keeps_its_queue_its_length_and_a_right_checksum() -> None:
    chance = random.Random(3)
    sound = encode_batch(QUEUE, Columns(["k"], [], [], [b"body"], []), born_first_ms=1)
    for _ in range(300):
        batch = mutated(sound, chance)
        assert len(batch) == len(sound)
        if int.from_bytes(batch[56:60], "little"):
            assert check_whole(batch).queue == QUEUE
