"""What is left of a batch: all that is selected, in its own place, and nothing hidden."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters.filter import Filter
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, assign, decode_records, encode_batch, read_header
from headrace_mq.protocol.sieve import selected_of, sieve

RARE = Filter("n = 1")


def stored(numbers: list[int], *, tags: list[str] | None = None, codec: str = "none") -> bytearray:
    count = len(numbers)
    batch = encode_batch(
        QueueRef("t", 3),
        Columns(
            [f"k{n}" for n in numbers],
            tags or [],
            [{"n": str(n)} for n in numbers],
            [str(place).encode() for place in range(count)],
            list(range(count)),
        ),
        born_first_ms=1_000,
        producer_id=7,
        producer_epoch=2,
        first_sequence=50,
        codec=codec,
    )
    assign(batch, base_offset=100, position=12, appended_at_ms=2_000, epoch=4)
    return batch


@given(
    st.lists(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), min_size=1, max_size=80),
    st.sampled_from(["none", "lz4", "zstd"]),
)
def test_every_selected_record_comes_as_it_was_stored(numbers: list[int], codec: str) -> None:
    batch = stored(numbers, codec=codec)
    left = [record for one in sieve(bytes(batch), RARE) for record in decode_records(one)]
    wanted = [r for r in decode_records(batch) if r.headers == {"n": "1"}]
    assert selected_of(left, RARE) == wanted
    assert selected_of(decode_records(batch), RARE) == wanted


def test_a_batch_without_a_match_is_left_out() -> None:
    assert sieve(bytes(stored([0] * 10)), RARE) == []


def test_neighbours_come_in_one_batch_with_their_own_offsets() -> None:
    parts = sieve(bytes(stored([0] * 20 + [1, 1] + [0] * 20 + [1])), RARE)
    headers = [read_header(part) for part in parts]
    assert [(one.base_offset, one.count) for one in headers] == [(120, 2), (142, 1)]
    assert [one.first_sequence for one in headers] == [70, 92]
    assert {(one.epoch, one.position, one.producer_id) for one in headers} == {(4, 12, 7)}


def test_a_batch_with_many_matches_stays_as_its_producer_made_it() -> None:
    for numbers in ([1] * 10, [0, 1] * 10):
        batch = bytes(stored(numbers))
        assert sieve(batch, RARE) == [batch]


def test_a_tag_that_no_record_has_is_seen_in_the_summary() -> None:
    batch = stored([1] * 4, tags=["a", "b", "a", "b"])
    assert sieve(bytes(batch), Filter("_tag = 'zz' AND n = 1")) == []
    assert sieve(bytes(batch), Filter("_tag IN ('a', 'b')")) == [bytes(batch)]


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_damaged_batch_is_passed_on_for_its_reader_to_tell(at: int, bit: int) -> None:
    batch = stored([0] * 10)
    batch[at % len(batch)] ^= 1 << bit
    assert sieve(bytes(batch), RARE) in ([], [bytes(batch)])
