import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.protocol.keys import (
    keyless,
    open_queue_for_key,
    open_queues,
    open_queues_for_keys,
    queue_for_key,
)


def test_the_check_value_of_crc_32c_gives_the_queue() -> None:
    assert queue_for_key("123456789", 1_000) == 0xE3069283 % 1_000


@given(st.text(max_size=20), st.integers(1, 1_024))
def test_every_key_has_one_of_the_queues(key: str, queues: int) -> None:
    assert 0 <= queue_for_key(key, queues) < queues


@pytest.mark.parametrize(
    ("keys", "without"), [([], 3), (["a", "", "b"], 1), (["a", "b", "c"], 0), (["", "", ""], 3)]
)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_records_without_a_key_are_counted(keys: list[str], without: int, codec: str) -> None:
    columns = Columns(keys, [], [], [b"1", b"2", b"3"], [])
    batch = bytes(encode_batch(QueueRef("t", 0), columns, born_first_ms=1, codec=codec))
    assert keyless(batch, read_header(batch)) == without


def test_keys_that_cannot_be_read_are_damage() -> None:
    batch = encode_batch(QueueRef("t", 0), Columns(["a"], [], [], [b"1"], []), born_first_ms=1)
    header = read_header(batch)
    batch[header.payload_at] = 0xC1
    with pytest.raises(DataCorrupt):
        keyless(batch, header)


@given(st.lists(st.text()), st.integers(1, 9), st.sets(st.integers(0, 8)), st.booleans())
def test_keys_go_to_the_queues_that_take_messages_by_one_rule(
    keys: list[str], queues: int, closed: set[int], compact: bool
) -> None:
    among = open_queues(queues, closed, compact=compact)
    expected = [among[queue_for_key(key, len(among))] for key in keys]
    assert [open_queue_for_key(key, among) for key in keys] == expected
    assert open_queues_for_keys(keys, among) == expected
