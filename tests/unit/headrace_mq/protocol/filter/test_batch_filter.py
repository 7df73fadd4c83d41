"""What is left of batches: all that is selected, in its own place, and nothing hidden."""

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters.filter import Filter
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import (
    Columns,
    assign,
    decode_placed,
    decode_records,
    encode_batch,
    unpacked,
)
from headrace_mq.protocol.batch import read_header as header_of
from headrace_mq.protocol.filter.batch_filter import BatchFilter, Selection, selected_of
from headrace_mq.protocol.filter.picks import picked_records
from headrace_mq.protocol.sparse import thinned

QUEUE = QueueRef("t", 3)
RARE = BatchFilter("n = 1")


def stored(
    numbers: list[int], *, tags: list[str] | None = None, codec: str = "none", base: int = 100
) -> bytes:
    count = len(numbers)
    batch = encode_batch(
        QUEUE,
        Columns(
            [f"k{n}" for n in numbers],
            tags or [],
            [{"n": str(n), "place": str(place)} for place, n in enumerate(numbers)],
            [str(place).encode() * 20 for place in range(count)],
            list(range(count)),
        ),
        born_first_ms=1_000,
        producer_id=7,
        producer_epoch=2,
        first_sequence=50,
        codec=codec,
    )
    assign(batch, base_offset=base, position=12, appended_at_ms=2_000, epoch=4)
    return bytes(batch)


def gathered(batch_filter: BatchFilter, *batches: bytes) -> Selection:
    gathering = Selection(QUEUE)
    for batch in batches:
        part = batch_filter.part_of(batch, picks=True)
        if part is not None:
            gathering.add(part)
    gathering.close()
    return gathering


def records_of(gathering: Selection, wanted: Filter) -> list[Record]:
    whole = [record for batch in gathering.batches for record in decode_records(batch)]
    picks = [record for one in gathering.picked for record in picked_records(one)]
    return sorted([*selected_of(whole, wanted), *picks], key=lambda record: record.offset)


@given(
    st.lists(
        st.lists(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), min_size=1, max_size=80),
        min_size=1, max_size=4,
    ),
    st.sampled_from(["none", "lz4", "zstd"]),
    st.sampled_from(["n = 1", "n = '1'", "n IN ('1', 'x')", "n >= 1 AND _key = 'k1'",
                     "_tag = 'odd'", "_tag = 'odd' AND n = 0", "n = 1 OR _key IS NULL",
                     "missing IS NULL AND n > 0", "NOT n = 0", "TRUE", "FALSE"]),
)  # fmt: skip
def test_every_selected_record_comes_as_it_was_stored(
    lists: list[list[int]], codec: str, text: str
) -> None:
    batches, base = [], 0
    for numbers in lists:
        tags = ["odd" if place % 9 == 4 else "even" for place in range(len(numbers))]
        batches.append(stored(numbers, codec=codec, base=base, tags=tags))
        base += len(numbers)
    batch_filter = BatchFilter(text)
    every = [record for batch in batches for record in decode_records(batch)]
    wanted = [r for r in every if Filter(text).selects(r.headers, r.key, r.tag)]
    gathering = gathered(batch_filter, *batches)
    assert records_of(gathering, batch_filter.wanted) == wanted
    assert gathering.count >= len(wanted)


def test_a_batch_without_a_match_is_left_out() -> None:
    assert RARE.part_of(stored([0] * 10), picks=True) is None


def test_messages_that_are_picked_of_neighbouring_batches_come_together() -> None:
    first, second = stored([0] * 20 + [1, 1], base=0), stored([0] * 30 + [1], base=22)
    gathering = gathered(RARE, first, second)
    assert (gathering.batches, gathering.count) == ([], 3)
    (picked,) = gathering.picked
    assert [record.offset for record in picked_records(picked)] == [20, 21, 52]


def test_picks_do_not_reach_over_a_whole_batch() -> None:
    rare, full = [0] * 20 + [1], [1] * 10
    batches = [stored(rare, base=0), stored(full, base=21), stored(rare, base=31)]
    gathering = gathered(RARE, *batches)
    assert gathering.batches == [batches[1]]
    assert [[r.offset for r in picked_records(one)] for one in gathering.picked] == [[20], [51]]


def test_a_batch_with_many_matches_stays_as_its_producer_made_it() -> None:
    for numbers in ([1] * 10, [0, 1, 1] * 10):
        batch = stored(numbers)
        assert gathered(RARE, batch).batches == [batch]


def test_readers_that_know_no_picks_get_whole_batches() -> None:
    batch = stored([0] * 20 + [1])
    part = RARE.part_of(batch, picks=False)
    assert part is not None
    assert (part.whole, part.picks, part.records) == (batch, None, 21)
    assert RARE.part_of(stored([0] * 20), picks=False) is None


@pytest.mark.parametrize("text", ["n = 1", "n >= 0.5 AND n <= 1", "_tag = 'a'", "_key = 'k1'"])
def test_picked_messages_keep_none_of_their_batch_in_memory(text: str) -> None:
    batch_filter, numbers = BatchFilter(text), [9] * 499 + [1]
    batches = [stored(numbers, tags=["b"] * 499 + ["a"], base=500 * number) for number in range(40)]
    gathering = Selection(QUEUE)
    tracemalloc.start()
    for batch in batches:
        part = batch_filter.part_of(batch, picks=True)
        assert part is not None
        gathering.add(part)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert gathering.count == 40
    # What decides without decoding learns a little of what it sees.
    assert held < 10 * len(batches[0])


def test_picks_are_never_longer_than_the_batch_they_come_from() -> None:
    tiny = encode_batch(QUEUE, Columns([], ["a", "b"] * 8, [], [b""] * 16, []), born_first_ms=1)
    part = BatchFilter("_tag = 'a'").part_of(bytes(tiny), picks=True)
    assert part is not None
    assert (part.whole, part.size) == (bytes(tiny), len(tiny))
    sent = gathered(RARE, *(stored([0] * 9 + [1], base=at) for at in range(0, 100, 10)))
    (picked,) = sent.picked
    assert len(picked.messages) <= sent.size <= 10 * len(stored([0] * 9 + [1]))


@pytest.mark.parametrize(
    "name", ["x-y", "h1", 'a"b', "a\\b", "a\nb", "\0", "\x7f", "ü€", "__class__", "'", "class"]
)
def test_a_header_may_have_any_name(name: str) -> None:
    headers = [{name: "1"}, *({"other": str(n)} for n in range(20))]
    batch = encode_batch(QUEUE, Columns([], [], headers, [b"x" * 99] * 21, []), born_first_ms=1)
    quoted = '"' + name.replace('"', '""') + '"'
    for text in (f"{quoted} = 1", f"{quoted} = '1' AND h2 IS NULL"):
        (picked,) = gathered(BatchFilter(text), bytes(batch)).picked
        assert [record.headers for record in picked_records(picked)] == [{name: "1"}]


def test_a_tag_that_no_record_has_is_seen_in_the_summary() -> None:
    batch = stored([1] * 4, tags=["a", "b", "a", "b"])
    unreadable = bytearray(batch)
    unreadable[-40:] = bytes(40)
    assert BatchFilter("_tag = 'zz' AND n = 1").part_of(unreadable, picks=True) is None
    assert gathered(BatchFilter("_tag IN ('a', 'b')"), batch).batches == [batch]


def test_records_that_a_compaction_left_are_selected_alike() -> None:
    batch = stored([0, 1, 1] + [0] * 20 + [1])
    header = header_of(batch)
    kept = [0, 2, *range(4, 24)]
    left = bytes(thinned(batch, header, *decode_placed(batch, header), kept))
    gathering = gathered(RARE, left)
    assert [r.offset for r in records_of(gathering, RARE.wanted)] == [102, 123]
    assert gathered(BatchFilter("n = 7"), left).count == 0
    whole = RARE.part_of(left, picks=False)
    assert whole is not None
    assert whole.whole == left


def test_a_batch_that_does_not_decode_is_passed_on_to_its_reader() -> None:
    plain = stored([0] * 10)
    at = header_of(plain).payload_at
    for damage in (b"\xc1", b"\x95\x91\xa1k\x90\x90\x90\x90"):
        batch = plain[:at] + damage + plain[at + len(damage) :]
        assert gathered(RARE, batch).batches == [batch]
    columns = msgspec.msgpack.decode(unpacked(plain, header_of(plain)))
    columns[2] = [{"n": "1"}]
    short = bytearray(encode_batch(QUEUE, Columns(*columns), born_first_ms=1))
    assert gathered(RARE, bytes(short)).batches == [short]
