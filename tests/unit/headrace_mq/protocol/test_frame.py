import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import FrameTooLarge, MalformedRequest
from headrace_mq.protocol.frame import (
    FLAG_ANSWER,
    FLAG_ONEWAY,
    FRAME_HEADER_BYTES,
    PROTOCOL_VERSION,
    FrameReader,
    encode_frame,
    encode_frame_head,
)

LIMIT = 1 << 16

frames = st.lists(
    st.tuples(
        st.integers(0, 65_535),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=300),
        st.integers(0, 255),
    ),
    max_size=8,
)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in itertools.pairwise(at)]


@given(frames, st.lists(st.integers(0, 5_000), max_size=20))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(
    sent: list[tuple[int, int, bytes, int]], cuts: list[int]
) -> None:
    stream = b"".join(
        encode_frame(code, correlation, body, flags=flags)
        for code, correlation, body, flags in sent
    )
    reader = FrameReader(LIMIT)
    received = [frame for chunk in cut(stream, cuts) for frame in reader.feed(chunk)]
    assert [
        (frame.code, frame.correlation, bytes(frame.body), frame.flags) for frame in received
    ] == sent
    assert all(frame.version == PROTOCOL_VERSION for frame in received)


@given(st.lists(st.binary(max_size=100), max_size=5), st.integers(0, 3))
def test_a_head_and_its_parts_are_the_same_bytes_as_the_frame(
    parts: list[bytes], flags: int
) -> None:
    body = b"".join(parts)
    whole = encode_frame(11, 7, *parts, flags=flags)
    assert whole == encode_frame_head(11, 7, len(body), flags) + body


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_random_bytes_give_frames_or_one_of_the_two_errors(data: bytes, cuts: list[int]) -> None:
    reader = FrameReader(1_000)
    try:
        for chunk in cut(data, cuts):
            for frame in reader.feed(chunk):
                assert len(frame.body) + FRAME_HEADER_BYTES <= len(data)
    except (FrameTooLarge, MalformedRequest):
        pass


def test_a_frame_is_refused_by_its_length_field_before_its_body_arrives() -> None:
    head = encode_frame_head(10, 1, LIMIT)
    with pytest.raises(FrameTooLarge, match="send smaller batches"):
        list(FrameReader(LIMIT).feed(head))


def test_a_frame_exactly_at_the_limit_passes() -> None:
    body = bytes(LIMIT - (FRAME_HEADER_BYTES - 4))
    (frame,) = FrameReader(LIMIT).feed(encode_frame(10, 1, body))
    assert len(frame.body) == len(body)


def test_a_length_below_its_own_header_is_malformed() -> None:
    with pytest.raises(MalformedRequest):
        list(FrameReader(LIMIT).feed(struct.pack("<IHBBQ", 11, 10, 1, 0, 1)))


def test_the_limit_raised_by_a_frame_holds_for_the_next_one_of_the_same_read() -> None:
    reader = FrameReader(100)
    large = bytes(1_000)
    received = []
    for frame in reader.feed(encode_frame(1, 1, b"hello") + encode_frame(10, 2, large)):
        reader.frame_bytes_max = LIMIT
        received.append(len(frame.body))
    assert received == [5, 1_000]


def test_a_body_can_be_written_to_and_is_not_touched_by_what_arrives_later() -> None:
    reader = FrameReader(LIMIT)
    stream = encode_frame(10, 1, b"first") + encode_frame(10, 2, b"second")
    (first,) = reader.feed(stream[:-3])
    first.body[:2] = b"XX"
    (second,) = reader.feed(stream[-3:])
    assert bytes(first.body) == b"XXrst"
    assert bytes(second.body) == b"second"


def test_flags_read_as_words() -> None:
    (answer, oneway) = FrameReader(LIMIT).feed(
        encode_frame(0, 1, flags=FLAG_ANSWER) + encode_frame(10, 2, flags=FLAG_ONEWAY)
    )
    assert (answer.is_answer, answer.is_oneway) == (True, False)
    assert (oneway.is_answer, oneway.is_oneway) == (False, True)


def test_a_number_stays_while_the_same_frame_is_arriving() -> None:
    reader, frame = FrameReader(LIMIT), encode_frame(1, 1, b"body")
    assert not reader.held
    list(reader.feed(frame[:3]))
    first = reader.cuts
    list(reader.feed(frame[3:18]))
    assert (reader.cuts, bytes(reader.held)) == (first, frame[:18])
    list(reader.feed(frame[18:] + frame[:5]))
    assert reader.cuts != first
    assert bytes(reader.held) == frame[:5]
    list(reader.feed(frame[5:]))
    assert not reader.held
