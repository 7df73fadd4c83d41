import pytest

from headrace_mq.client.producer.known_keys import KnownKeys
from headrace_mq.client.producer.queue_sender import QueueSender
from headrace_mq.client.producer.route import KNOWN_KEY_CHARACTERS_MAX, KNOWN_KEYS_MAX
from headrace_mq.message import QueueRef


@pytest.fixture
def lane() -> QueueSender:
    return QueueSender(QueueRef("t", 0), 1, messages_max=10, bytes_max=1_000, codec="none")


def test_a_key_is_found_in_its_topic_until_that_is_forgotten(lane: QueueSender) -> None:
    known = KnownKeys()
    known.learn("t", "k", lane, 0)
    assert known.lanes == {"t": {"k": lane}}
    known.forget("other")
    known.forget("t")
    assert known.lanes == {}


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("key", ["ü", "k" * (KNOWN_KEY_CHARACTERS_MAX + 1), Text("k"), b"k"])
def test_a_key_that_needs_a_check_each_time_is_not_learned(lane: QueueSender, key: str) -> None:
    known = KnownKeys()
    known.learn("t", key, lane, 0)
    assert known.lanes == {}


def fill(known: KnownKeys, lane: QueueSender, since: int, placed: int) -> None:
    for number in range(KNOWN_KEYS_MAX + 1):
        known.learn("t", f"{since}-{number}", lane, placed)


def test_a_table_that_is_full_begins_anew_as_long_as_it_is_of_use(lane: QueueSender) -> None:
    known = KnownKeys()
    for turn in range(1, 4):
        fill(known, lane, turn, turn * 2 * KNOWN_KEYS_MAX)
        assert 0 < len(known.lanes["t"]) <= KNOWN_KEYS_MAX
        assert f"{turn}-{KNOWN_KEYS_MAX}" in known.lanes["t"]


def test_where_most_keys_are_new_none_is_learned_any_more(lane: QueueSender) -> None:
    known = KnownKeys()
    fill(known, lane, 1, KNOWN_KEYS_MAX + 1)
    known.learn("t", "late", lane, KNOWN_KEYS_MAX + 2)
    assert "late" not in known.lanes["t"]
    assert len(known.lanes["t"]) <= 1
