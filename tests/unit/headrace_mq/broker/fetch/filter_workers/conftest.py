"""A stored backlog of which one message of a hundred is wanted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

QUEUE, OTHER = QueueRef("t", 0), QueueRef("t", 1)
BATCHES, RECORDS = 120, 100
RARE = "_tag = 'rare'"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    """120 batches of a hundred messages in one queue; between them those of another one.

    One of each hundred messages has the tag "rare", and all of the batch at offset 5,000.
    """
    held = MessageStore(StoreSettings(directory=tmp_path / "store", segment_bytes=8 << 20))
    held.open()
    try:
        for number in range(BATCHES):
            tags = ["rare" if n == 7 or number == 50 else "usual" for n in range(RECORDS)]
            for queue in (QUEUE, OTHER):
                columns = Columns([], tags, [], [b"x" * 100] * RECORDS, [])
                held.append(encode_batch(queue, columns, born_first_ms=1), retention="forever")
        await held.durable()
        yield held
    finally:
        await held.aclose()
