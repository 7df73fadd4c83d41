from headrace_mq.archive.rebuilt import BATCH_BYTES, ArchivedRow, rebuilt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records, read_header

QUEUE = QueueRef("orders", 0)


def row(offset: int, position: int = 0, **changed: object) -> ArchivedRow:
    values: dict[str, object] = {
        "queue_offset": offset, "log_position": position, "sequence": offset, "records": 1,
        "batch": None, "key": "", "tag": "", "headers": "{}", "body": b"%d" % offset,
        "born_at_ms": 5, "stored_at_ms": 6, "producer_id": 7, "producer_epoch": 0, "epoch": 1,
        "flags": 0,
    }  # fmt: skip
    return ArchivedRow(**(values | changed))  # type: ignore[arg-type]  # a test's words


def spans(rows: list[ArchivedRow]) -> list[tuple[int, int]]:
    return [(one.base, one.end) for one in rebuilt(QUEUE, rows)]


def test_messages_that_came_together_stay_together() -> None:
    assert spans([row(0, 10), row(1, 10), row(2, 50)]) == [(0, 2), (2, 3)]


def test_a_gap_between_offsets_stays_a_gap() -> None:
    assert spans([row(0), row(1), row(5)]) == [(0, 2), (5, 6)]


def test_no_batch_grows_beyond_what_a_reader_takes_at_once() -> None:
    half = bytes(BATCH_BYTES // 2)
    assert spans([row(n, body=half) for n in range(3)]) == [(0, 2), (2, 3)]
    assert spans([row(0, body=bytes(3 * BATCH_BYTES))]) == [(0, 1)]
    assert [end - base for base, end in spans([row(n) for n in range(4_500)])] == [
        2_000,
        2_000,
        500,
    ]


def test_a_batch_that_was_kept_whole_is_returned_as_it_was() -> None:
    found = list(rebuilt(QUEUE, [row(0), row(1, batch=b"as it was", records=4), row(5)]))
    assert [(one.base, one.end) for one in found] == [(0, 1), (1, 5), (5, 6)]
    assert found[1].batch == b"as it was"


def test_a_part_of_a_batch_goes_on_with_its_own_sequence_and_times() -> None:
    (found,) = rebuilt(QUEUE, [row(3, born_at_ms=9), row(4, born_at_ms=2)])
    assert read_header(found.batch).first_sequence == 3
    assert [record.born_at_ms for record in decode_records(found.batch)] == [9, 2]


def test_a_producer_id_of_64_bits_comes_back() -> None:
    (found,) = rebuilt(QUEUE, [row(0, producer_id=-1)])
    assert read_header(found.batch).producer_id == 2**64 - 1
