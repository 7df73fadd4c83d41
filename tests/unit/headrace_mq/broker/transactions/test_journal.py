"""Records of the transactions' journal."""

from typing import Any

import msgspec
import pytest

from headrace_mq.broker.transactions.journal import (
    KIND_HEADER,
    BundleDecision,
    Checked,
    Decided,
    DecidedPart,
    Done,
    Event,
    Prepared,
    check_bundle,
    own_record,
    read_event,
)
from headrace_mq.errors import CorruptBatch, DataCorrupt, InvalidArgument
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, assign, decode_columns, encode_batch, read_header
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.transactions import TRANSACTION_QUEUE, Bundle, BundlePart


def inner(topic: str = "t", *bodies: bytes) -> bytes:
    columns = Columns([], [], [], list(bodies) or [b"x"], [])
    return bytes(encode_batch(QueueRef(topic, 1), columns, born_first_ms=1))


def bundle(**changed: Any) -> bytes:
    part = BundlePart(inner("t", b"1", b"2"), [0, 1])
    fields = {"group": "g", "client_id": "c", "ids": ["a", "b"], "parts": [part]}
    return encode(Bundle(**{**fields, **changed}))


def stored(columns: Columns) -> tuple[Any, Columns]:
    """A batch as the journal has it, at offset 10."""
    batch = encode_batch(TRANSACTION_QUEUE, columns, born_first_ms=1)
    assign(batch, base_offset=10, position=0, appended_at_ms=5_000, epoch=1)
    header = read_header(batch)
    return header, decode_columns(batch, header)


def test_a_bundle_is_prepared_when_it_was_appended() -> None:
    header, columns = stored(Columns([], [], [], [bundle(), bundle()], []))
    assert read_event(header, columns, 1) == Prepared(11, "g", "c", 2, 5_000)


@pytest.mark.parametrize(
    "event",
    [
        Decided(3, [BundleDecision(1, [0], [1], [2])], [DecidedPart("t", 0, 7, 1, 0, aside=True)]),
        Decided(3, [], [DecidedPart("t", 0, 7, 1, 0, among=[0, 2])]),
        Done(),
        Checked(4, 2, 99),
    ],
)
def test_a_record_of_the_broker_comes_back_as_it_was(event: Any) -> None:
    header, columns = stored(own_record(Done(), event))
    read: Event = read_event(header, columns, 1)
    assert read == event


def test_a_record_of_the_version_before_names_no_other_queues() -> None:
    old = msgspec.msgpack.encode(["decided", 3, [[1, [0], [], []]], [["t", 0, 7, 1, 0, False]]])
    header, columns = stored(Columns([], [], [{KIND_HEADER: "event"}], [old], []))
    assert read_event(header, columns, 0) == Decided(
        3, [BundleDecision(1, [0], [], [])], [DecidedPart("t", 0, 7, 1, 0, aside=False, among=[])]
    )


def test_a_record_that_means_nothing_is_damage() -> None:
    header, columns = stored(Columns([], [], [], [b"junk"], []))
    with pytest.raises(DataCorrupt, match="record 10"):
        read_event(header, columns, 0)


def test_a_sound_bundle_tells_its_transactions_and_queues() -> None:
    assert check_bundle(bundle())[:2] == (2, {QueueRef("t", 1)})
    assert check_bundle(bundle(ids=["x" * 255, "ü" * 127]))[:2] == (2, {QueueRef("t", 1)})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"junk", "bundles"),
        (bundle(group=""), "1 to 255"),
        (bundle(ids=["a", "x" * 256]), "1 to 255"),
        (bundle(ids=["a", "ü" * 128]), "1 to 255"),
        (bundle(ids=[]), "1 to 4096"),
        (bundle(parts=[]), "1 to 4096"),
        (bundle(parts=[BundlePart(inner(), [0, 1])]), "name its transaction"),
        (bundle(parts=[BundlePart(inner(), [2])]), "name its transaction"),
        (bundle(parts=[BundlePart(inner(), [-1])]), "name its transaction"),
        (bundle(parts=[BundlePart(inner("%SCHEDULE%"), [0])]), "cannot send to"),
        (bundle(parts=[BundlePart(inner("%TRANSACTION%"), [0])]), "cannot send to"),
    ],
)
def test_a_bundle_that_cannot_be_taken_says_why(body: bytes, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        check_bundle(body)


def test_a_damaged_batch_in_a_bundle_is_found_before_it_is_taken() -> None:
    damaged = bytearray(inner())
    damaged[-1] ^= 1
    for batch in (bytes(damaged), b"short"):
        with pytest.raises(CorruptBatch):
            check_bundle(bundle(parts=[BundlePart(batch, [0])]))
