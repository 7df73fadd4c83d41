"""The record batch: what goes in comes out, and no damage passes for data."""

import struct

import google_crc32c
import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_mq.errors import CorruptBatch, DataCorrupt, FormatTooNew
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BATCH_HEADER_BYTES,
    BATCH_RECORDS_MAX,
    FORMAT_VERSION,
    PLAIN_BYTES_MAX,
    Columns,
    assign,
    batch_length,
    check_body,
    check_head,
    check_whole,
    decode_columns,
    decode_records,
    encode_batch,
    read_header,
    record_count,
    sound_batch,
    split_batches,
    tag_bit,
)

U32, U64 = (1 << 32) - 1, (1 << 64) - 1
I64_MAX = (1 << 63) - 1
TOPICS = st.text("abcdefghijklmnopqrstuvwxyz.-%", min_size=1, max_size=127)
TEXT = st.text(max_size=12)
CODECS = st.sampled_from(["none", "lz4", "zstd"])
GOLDEN = (
    "485242310100700083000000711cb4aa07000000000000000008000000000000"
    "15cd5b07000000000200000000000000707ea3d7000005000200000003000000"
    "0900000000000000010000000b000000e8030000000000000d04000000000000"
    "01000000000000000e0000000000000054524144459590909092c40161c40162"
    "920025"
)


def optional(values: st.SearchStrategy, count: int) -> st.SearchStrategy:
    """A column: left out, or one value per record."""
    return st.one_of(st.just([]), st.lists(values, min_size=count, max_size=count))


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    count = draw(st.integers(1, 8))
    return Columns(
        draw(optional(TEXT, count)),
        draw(optional(TEXT, count)),
        draw(optional(st.dictionaries(TEXT, TEXT, max_size=3), count)),
        draw(st.lists(st.binary(max_size=60), min_size=count, max_size=count)),
        draw(optional(st.integers(0, 1_000_000), count)),
    )


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A whole batch as the log holds it."""
    batch = encode_batch(
        QueueRef(draw(TOPICS), draw(st.integers(0, U32))),
        draw(columns()),
        born_first_ms=draw(st.integers(0, 1 << 50)),
        producer_id=draw(st.integers(0, U64)),
        producer_epoch=draw(st.integers(0, U32)),
        first_sequence=draw(st.integers(0, U32)),
        codec=draw(CODECS),
        flags=draw(st.integers(0, 255)),
    )
    assign(
        batch,
        base_offset=draw(st.integers(0, 1 << 60)),
        position=draw(st.integers(0, 1 << 60)),
        appended_at_ms=draw(st.integers(0, 1 << 50)),
        epoch=draw(st.integers(0, U32)),
    )
    return bytes(batch)


def one(codec: str = "none", body: bytes = b"body") -> bytearray:
    return encode_batch(
        QueueRef("orders", 1), Columns([], [], [], [body], []), born_first_ms=5, codec=codec
    )


def resealed(batch: bytearray) -> bytearray:
    """Gives a batch that a test changed the producer's checksum that fits it."""
    struct.pack_into("<I", batch, 48, google_crc32c.value(bytes(batch[52:])))
    return batch


@given(
    queue=st.builds(QueueRef, TOPICS, st.integers(0, U32)),
    sent=columns(),
    codec=CODECS,
    born=st.integers(0, 1 << 50),
    producer=st.tuples(st.integers(0, U64), st.integers(0, U32), st.integers(0, U32)),
    assigned=st.tuples(*[st.integers(0, I64_MAX - 100)] * 3, st.integers(0, U32)),
)
def test_an_encoded_and_assigned_batch_is_decoded(
    queue: QueueRef,
    sent: Columns,
    codec: str,
    born: int,
    producer: tuple[int, int, int],
    assigned: tuple[int, int, int, int],
) -> None:
    producer_id, producer_epoch, sequence = producer
    batch = encode_batch(
        queue,
        sent,
        born_first_ms=born,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        first_sequence=sequence,
        codec=codec,
    )
    offset, position, appended_at_ms, epoch = assigned
    assign(
        memoryview(batch),
        base_offset=offset,
        position=position,
        appended_at_ms=appended_at_ms,
        epoch=epoch,
    )
    check_head(batch)
    check_body(batch)
    header = read_header(batch)
    assert header[:5] == (len(batch), offset, position, appended_at_ms, epoch)
    assert header.queue == queue
    assert header.count == len(sent.bodies)
    assert header.next_offset == offset + len(sent.bodies)
    assert header[9:12] == producer
    assert header.born_last_ms == born + max(sent.born_deltas, default=0)
    assert decode_columns(batch, header) == sent
    for number, record in enumerate(decode_records(bytes(batch))):
        assert record.queue == queue
        assert record.offset == offset + number
        assert record.body == sent.bodies[number]
        assert record.key == (sent.keys[number] if sent.keys else "")
        assert record.tag == (sent.tags[number] if sent.tags else "")
        assert record.headers == (sent.headers[number] if sent.headers else {})
        assert record.born_at_ms == born + (sent.born_deltas[number] if sent.born_deltas else 0)
        assert record.stored_at_ms == appended_at_ms
        assert header.tag_summary & tag_bit(record.tag)


def test_the_bytes_are_those_of_the_drawing() -> None:
    batch = encode_batch(
        QueueRef("TRADE", 3),
        Columns([], [], [], [b"a", b"b"], [0, 37]),
        born_first_ms=1_000,
        producer_id=9,
        producer_epoch=1,
        first_sequence=11,
    )
    assign(batch, base_offset=7, position=2_048, appended_at_ms=123_456_789, epoch=2)
    assert batch.hex() == GOLDEN
    assert read_header(bytes.fromhex(GOLDEN)).queue == QueueRef("TRADE", 3)


@given(batches(), st.binary(min_size=1, max_size=5))
def test_a_buffer_of_exactly_one_sound_batch_differs_from_any_other(
    batch: bytes, more: bytes
) -> None:
    assert check_whole(batch) == read_header(batch)
    assert check_whole(batch, read_header(batch)) == read_header(batch)
    for other in (batch[:-1], batch + more, batch[:-1] + bytes([batch[-1] ^ 1])):
        with pytest.raises(CorruptBatch):
            check_whole(other)


@given(batches(), st.integers(0, 2**62), st.integers(0, 2**62), st.data())
def test_a_stored_batch_is_identified_unless_any_of_its_bits_is_wrong(
    batch: bytes, base: int, position: int, data: st.DataObject
) -> None:
    stored = bytearray(batch)
    assign(stored, base_offset=base, position=position, appended_at_ms=5, epoch=9)
    header = read_header(stored)
    identity = (len(batch), base, position, header.queue.queue_id, header.queue.topic.encode())
    assert sound_batch(memoryview(stored)) == identity
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    stored[bit // 8] ^= 1 << bit % 8
    assert sound_batch(memoryview(stored)) is None
    stored[bit // 8] ^= 1 << bit % 8
    for other in (stored[:-1], stored + b"x", stored[:100], b""):
        assert sound_batch(memoryview(other)) is None


@given(batches())
def test_the_header_reads_the_same_from_any_buffer_and_place(batch: bytes) -> None:
    expected = read_header(batch)
    assert read_header(bytearray(batch)) == expected
    assert record_count(batch) == expected.count
    assert read_header(memoryview(b"xyz" + batch), 3) == expected
    check_head(memoryview(b"xyz" + batch), 3)
    check_body(memoryview(b"xyz" + batch), 3)
    assert batch_length(b"xyz" + batch, 3) == len(batch)


def is_sound(batch: bytearray) -> bool:
    try:
        check_head(batch)
        check_body(batch)
    except (CorruptBatch, DataCorrupt, FormatTooNew):
        return False
    return True


@settings(max_examples=5)
@given(batches())
def test_every_flipped_bit_is_noticed_by_one_of_the_two_checksums(batch: bytes) -> None:
    flipped = bytearray(batch)
    assert is_sound(flipped)
    for bit in range(len(batch) * 8):
        flipped[bit // 8] ^= 1 << bit % 8
        assert not is_sound(flipped)
        flipped[bit // 8] ^= 1 << bit % 8


@given(batches(), st.data())
def test_the_producers_checksum_ignores_what_the_broker_assigns(
    batch: bytes, data: st.DataObject
) -> None:
    moved = bytearray(batch)
    value = data.draw(st.integers(0, 1 << 40))
    assign(moved, base_offset=value, position=value, appended_at_ms=value, epoch=value % U32)
    check_body(moved)
    assert moved[48:] == batch[48:]


@given(batches(), st.data())
def test_a_batch_that_is_cut_off_is_noticed(batch: bytes, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(batch) - 1))
    with pytest.raises((CorruptBatch, DataCorrupt)):
        decode_records(batch[:length])


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((CorruptBatch, DataCorrupt, FormatTooNew)):
        decode_records(data)


@given(sent=columns(), codec=st.sampled_from([0, 1, 2, 3, 255]), payload=st.binary(max_size=80))
def test_a_sealed_payload_that_means_nothing_is_refused(
    sent: Columns, codec: int, payload: bytes
) -> None:
    batch = one()
    header = read_header(batch)
    batch[header.payload_at :] = payload
    struct.pack_into("<I", batch, 8, len(batch))
    batch[52] = codec
    try:
        records = decode_records(resealed(batch))
    except DataCorrupt:
        return
    # The few payloads that do decode are those of one record.
    assert len(records) == 1


@given(st.lists(batches(), max_size=4))
def test_back_to_back_batches_are_split_where_they_meet(found: list[bytes]) -> None:
    assert [bytes(view) for view in split_batches(b"".join(found))] == found
    assert [bytes(view) for view in split_batches(b"??" + b"".join(found), 2)] == found


@given(st.lists(batches(), min_size=1, max_size=3), st.data())
def test_a_row_of_batches_that_ends_early_is_refused(
    found: list[bytes], data: st.DataObject
) -> None:
    row = b"".join(found)
    cut = data.draw(st.integers(len(row) - len(found[-1]) + 1, len(row) - 1))
    with pytest.raises(DataCorrupt):
        list(split_batches(row[:cut]))


def test_a_newer_format_is_refused_as_such() -> None:
    batch = one()
    batch[4] = FORMAT_VERSION + 1
    for reader in (read_header, batch_length, decode_records):
        with pytest.raises(FormatTooNew, match="newer version"):
            reader(batch)


def test_an_empty_batch_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="1 to 65536 records, not 0"):
        encode_batch(QueueRef("orders", 0), Columns([], [], [], [], []), born_first_ms=0)


def test_too_many_records_are_a_mistake() -> None:
    columns = Columns([], [], [], [b""] * (BATCH_RECORDS_MAX + 1), [])
    with pytest.raises(ValueError, match="not 65537"):
        encode_batch(QueueRef("orders", 0), columns, born_first_ms=0)


def test_too_many_bytes_are_a_mistake() -> None:
    columns = Columns([], [], [], [bytes(PLAIN_BYTES_MAX)], [])
    with pytest.raises(ValueError, match="at most 67108864 bytes"):
        encode_batch(QueueRef("orders", 0), columns, born_first_ms=0, codec="lz4")


def test_an_unknown_codec_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="'snappy' is unknown; use one of none, lz4, zstd"):
        one(codec="snappy")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compression_makes_repetition_smaller(codec: str) -> None:
    batch = one(codec=codec, body=bytes(10_000))
    assert len(batch) < 1_000
    assert decode_records(batch)[0].body == bytes(10_000)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("plain_bytes", [PLAIN_BYTES_MAX + 1, U32])
def test_a_payload_that_claims_to_unpack_to_too_much_is_refused(
    codec: str, plain_bytes: int
) -> None:
    batch = one(codec=codec)
    struct.pack_into("<I", batch, 104, plain_bytes)
    with pytest.raises(DataCorrupt, match="unpacks to"):
        decode_records(resealed(batch))


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (1, lz4.block.compress(bytes(5_000), store_size=False)),
        (2, zstandard.compress(bytes(5_000))),
    ],
    ids=["lz4", "zstd"],
)
def test_a_payload_larger_than_its_header_says_is_refused(codec: int, payload: bytes) -> None:
    batch = one()
    batch[read_header(batch).payload_at :] = payload
    struct.pack_into("<I", batch, 8, len(batch))
    batch[52] = codec
    struct.pack_into("<I", batch, 104, 100)
    with pytest.raises(DataCorrupt):
        decode_records(resealed(batch))


@pytest.mark.parametrize(
    ("at", "field", "value"),
    [(6, "<H", BATCH_HEADER_BYTES - 1), (6, "<H", 60_000), (56, "<I", 0), (54, "<B", 255)],
    ids=["short header", "header beyond the batch", "no records", "topic beyond the batch"],
)
def test_a_header_that_contradicts_itself_is_refused(at: int, field: str, value: int) -> None:
    batch = one()
    struct.pack_into(field, batch, at, value)
    with pytest.raises(DataCorrupt, match="contradicts itself"):
        read_header(batch)


@pytest.mark.parametrize("length", [0, BATCH_HEADER_BYTES])
def test_a_length_without_room_for_a_payload_is_refused(length: int) -> None:
    batch = one()
    struct.pack_into("<I", batch, 8, length)
    with pytest.raises(DataCorrupt, match=f"claims {length} bytes"):
        read_header(batch)


def test_a_topic_that_is_no_text_is_refused() -> None:
    batch = one()
    batch[BATCH_HEADER_BYTES] = 0xFF
    with pytest.raises(DataCorrupt, match="not UTF-8"):
        read_header(batch)


def test_columns_of_different_lengths_are_refused() -> None:
    batch = encode_batch(
        QueueRef("orders", 0), Columns(["a"], [], [], [b"1", b"2"], []), born_first_ms=0
    )
    with pytest.raises(DataCorrupt, match="differ in length"):
        decode_records(batch)


@given(st.text(min_size=1))
def test_a_tag_has_one_bit_and_no_tag_has_the_first(tag: str) -> None:
    assert tag_bit(tag).bit_count() == 1
    assert tag_bit(tag) < 1 << 64
    assert tag_bit("") == 1
