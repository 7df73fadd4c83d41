"""
The event topic as Spark's driver and executors read it: over the port of topics of any queue.

Used by the modules of this package in place of the queue's own functions, which they are.
"""

from functools import partial
from typing import Final

from headrace.transports.topic_reader import open_topic_reader
from headrace_mq.spark import reader

__all__ = [
    "fetch_identity",
    "fetch_offsets_at",
    "fetch_ranges",
    "fetch_settled",
    "message_bytes",
    "read_columns",
    "read_record_batches",
]

fetch_ranges: Final = partial(reader.fetch_ranges, connect=open_topic_reader)
fetch_identity: Final = partial(reader.fetch_identity, connect=open_topic_reader)
fetch_offsets_at: Final = partial(reader.fetch_offsets_at, connect=open_topic_reader)
fetch_settled: Final = partial(reader.fetch_settled, connect=open_topic_reader)
message_bytes: Final = partial(reader.message_bytes, connect=open_topic_reader)
read_columns: Final = partial(reader.read_columns, connect=open_topic_reader)
read_record_batches: Final = partial(reader.read_record_batches, connect=open_topic_reader)
