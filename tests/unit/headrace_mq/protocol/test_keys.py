from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.protocol.keys import queue_for_key


def test_the_check_value_of_crc_32c_gives_the_queue() -> None:
    assert queue_for_key("123456789", 1_000) == 0xE3069283 % 1_000


@given(st.text(max_size=20), st.integers(1, 1_024))
def test_every_key_has_one_of_the_queues(key: str, queues: int) -> None:
    assert 0 <= queue_for_key(key, queues) < queues
