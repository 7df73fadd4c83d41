"""What is seen of messages by those that may read a topic but not consume it."""

from typing import Any

import msgspec
import pytest

from headrace_mq.access import heads as module
from headrace_mq.access.heads import (
    HEAD_HEADER,
    HeadRoom,
    MessageHead,
    body_bytes,
    consumption,
    head_of,
    hidden_words,
    is_head,
    seen_records,
)
from headrace_mq.client.retry_headers import ORIGIN_HEADER, Origin, origin_of
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    Columns,
    assign,
    decode_records,
    encode_batch,
    read_header,
)
from headrace_mq.protocol.sparse import thinned

QUEUE = QueueRef("%DLQ%kitchen", 0)
SECRET = "the planted secret"


def stored(columns: Columns, codec: str = "none") -> bytearray:
    """A batch as a broker keeps it."""
    batch = encode_batch(QUEUE, columns, born_first_ms=5, producer_id=9, codec=codec)
    assign(batch, base_offset=40, position=7, appended_at_ms=6, epoch=1)
    return batch


def three(reason: str = f"ValueError: {SECRET}", codec: str = "none") -> bytearray:
    origin = Origin(
        topic="orders", queue_id=1, offset=2, born_at_ms=3, attempt=4, reason=reason, back_to="orders"
    )  # fmt: skip
    failed = {ORIGIN_HEADER: msgspec.json.encode(origin).decode(), "note": SECRET}
    columns = Columns(
        ["ann", "bob", "ann"], ["hot", "", "hot"], [failed, {"note": SECRET}, {}],
        [SECRET.encode(), b"", b"x" * 1_000], [0, 1, 2],
    )  # fmt: skip
    return stored(columns, codec)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_head_has_everything_but_the_content(codec: str) -> None:
    made = head_of(three(codec=codec))
    heads = seen_records(made)
    assert SECRET.encode() not in bytes(made)
    assert [(one.offset, one.key, one.tag, one.born_at_ms) for one in heads] == [
        (40, "ann", "hot", 5), (41, "bob", "", 6), (42, "ann", "hot", 7),
    ]  # fmt: skip
    assert all(is_head(one) and one.stored_at_ms == 6 and one.producer_id == 9 for one in heads)
    assert [body_bytes(one) for one in heads] == [len(SECRET), 0, 1_000]
    assert SECRET not in str(heads)


def test_an_origin_stays_with_the_name_of_its_error_alone() -> None:
    (first, *_) = decode_records(head_of(three()))
    origin = origin_of(first)
    assert origin is not None
    assert (origin.topic, origin.offset, origin.attempt, origin.reason) == ("orders", 2, 4, "ValueError")  # fmt: skip


@pytest.mark.parametrize("reason", [SECRET, f"{SECRET}: no", "", f"({SECRET}"])
def test_a_reason_that_names_no_error_is_left_out(reason: str) -> None:
    (first, *_) = decode_records(head_of(three(reason)))
    origin = origin_of(first)
    assert origin is not None
    assert origin.reason == ""


@pytest.mark.parametrize("origin", [SECRET, "{}", '{"topic": 5}'])
def test_an_origin_that_is_none_is_left_out(origin: str) -> None:
    batch = stored(Columns([], [], [{ORIGIN_HEADER: origin}], [b"x"], []))
    (one,) = decode_records(head_of(batch))
    assert one.headers == {HEAD_HEADER: "1"}


def test_heads_of_one_key_leave_the_others_out() -> None:
    assert [one.offset for one in decode_records(head_of(three(), "ann"))] == [40, 42]
    assert decode_records(head_of(three(), "eve")) == []


def test_a_batch_that_was_compacted_keeps_its_places() -> None:
    dense = three()
    header = read_header(dense)
    columns = Columns(["a", "b", "c"], [], [], [b"1", b"22", b"333"], [])
    sparse = thinned(dense, header, range(40, 43), columns, [0, 2])
    heads = seen_records(head_of(sparse))
    assert [(one.offset, body_bytes(one)) for one in heads] == [(40, 1), (42, 3)]


def test_of_a_batch_that_does_not_decode_nothing_is_shown() -> None:
    batch = stored(Columns([], [], [], [SECRET.encode()], []))
    at = bytes(batch).index(SECRET.encode())
    batch[at - 3] = 0xC1  # never used in msgpack
    made = head_of(batch)
    assert decode_records(made) == []
    assert read_header(made).next_offset == 41


@pytest.mark.parametrize("body", [b"", b"body"])
def test_a_message_is_no_head_even_if_its_headers_say_so(body: bytes) -> None:
    batch = stored(Columns([], [], [{HEAD_HEADER: "7", "note": "n"}], [body], []))
    (forged,) = seen_records(batch)
    assert (is_head(forged), body_bytes(forged)) == (False, len(body))
    assert forged.headers == {HEAD_HEADER: "7", "note": "n"}
    (head,) = seen_records(head_of(batch))
    assert (is_head(head), body_bytes(head)) == (True, len(body))


def test_a_head_whose_size_is_no_number_has_none() -> None:
    odd: dict[str, Any] = {HEAD_HEADER: "many"}
    assert body_bytes(MessageHead(QUEUE, 1, "", "", odd, b"", 1, 1)) == 0


def test_one_answer_has_room_for_its_first_batch_and_for_small_ones_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HEAD_RECORDS_MAX", 7)
    room = HeadRoom()
    assert [len(room.take([three()])) for _ in range(4)] == [1, 1, 0, 0]
    assert room.is_over
    monkeypatch.setattr(module, "HEAD_RECORDS_MAX", 1)
    assert len(HeadRoom().take([three(), three()])) == 1


def test_the_unpacked_bytes_of_a_batch_count_and_not_the_packed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zeros = stored(Columns([], [], [], [bytes(100_000)], []), "zstd")
    assert len(zeros) < 1_000
    monkeypatch.setattr(module, "HEAD_PLAIN_BYTES_MAX", 250_000)
    assert len(HeadRoom().take([zeros] * 9)) == 2


def test_a_hidden_message_names_the_action_and_its_owner() -> None:
    assert hidden_words(QUEUE) == "needs consume on group:kitchen"
    assert hidden_words(QueueRef("orders", 3)) == "needs consume on topic:orders"
    assert str(consumption("orders")) == "consume topic:orders"
