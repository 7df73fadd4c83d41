"""Messages with a time to live."""

from collections.abc import Sequence

import msgspec
import pytest

from headrace_mq.client.retries.expiry import SETTLED_MS, TTL_HEADER, Expiry, expiring, is_expired
from headrace_mq.client.retries.retries import GiveUp
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.testing.clock import ManualClock

BORN = 1_000


class Clock:
    """Stands at the moment at which a record with 10 ms to live is over."""

    def now_ms(self) -> int:
        return BORN + 10

    def monotonic_ms(self) -> int:
        return 0


def record(offset: int, ttl: str | None = None) -> Record:
    headers = {} if ttl is None else {TTL_HEADER: ttl}
    return Record(QueueRef("t", 0), offset, "", "", headers, b"", BORN, 9_000_000)


class Seen:
    """A handler that keeps what it is given."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.calls = 0

    async def one(self, given: Record) -> None:
        self.offsets.append(given.offset)

    async def many(self, given: Sequence[Record]) -> None:
        self.calls += 1
        self.offsets += [one.offset for one in given]


def test_a_message_says_how_long_it_is_of_use_and_keeps_its_headers() -> None:
    message = expiring(Message(topic="t", body=b"x", headers={"h": "1"}), 5)
    assert message.headers == {"h": "1", TTL_HEADER: "5"}
    with pytest.raises(ValueError, match="1 ms or more"):
        expiring(message, 0)


def test_a_record_expires_at_its_time_counted_from_its_birth() -> None:
    assert not is_expired(record(0, "10"), BORN + 9)
    assert is_expired(record(0, "10"), BORN + 10)


@pytest.mark.parametrize("ttl", [None, "", "-1", "soon", "¹"])
def test_a_record_without_a_time_that_can_be_read_lives_for_ever(ttl: str | None) -> None:
    assert not is_expired(record(0, ttl), 1 << 60)


async def test_a_handler_never_sees_an_expired_record_and_it_counts_as_done() -> None:
    seen, expiry = Seen(), Expiry(clock=Clock())
    handle = expiry.spare(seen.one)
    for one in (record(0, "10"), record(1, "11"), record(2)):
        await handle(one)
    assert (seen.offsets, expiry.expired) == ([1, 2], 1)


async def test_an_expired_record_goes_to_the_dead_letters_where_that_is_wanted() -> None:
    seen, expiry = Seen(), Expiry("dead_letter", clock=Clock())
    with pytest.raises(GiveUp, match="10 ms"):
        await expiry.spare(seen.one)(record(0, "10"))
    assert (seen.offsets, expiry.expired) == ([], 1)


async def test_expired_records_are_left_out_of_a_batch_and_an_empty_batch_is_not_handed_over() -> (
    None
):
    seen, expiry = Seen(), Expiry(clock=Clock())
    handle = expiry.spare_batches(seen.many)
    await handle([record(0, "10"), record(1), record(2, "99")])
    await handle([record(3, "1")])
    assert (seen.offsets, seen.calls, expiry.expired) == ([1, 2], 1, 2)


@pytest.fixture
def lives_an_hour() -> Record:
    return msgspec.structs.replace(record(0, "3600000"), born_at_ms=ManualClock().now_ms())


async def test_a_clock_that_is_wrong_for_a_moment_gives_up_no_message(
    lives_an_hour: Record,
) -> None:
    clock, seen = ManualClock(), Seen()
    expiry = Expiry(clock=clock)
    handle = expiry.spare(seen.one)
    for leap_ms in (1_000, 86_400_000, -86_401_000, -86_400_000, 2 * 86_400_000):
        clock.set(clock.now_ms() + leap_ms)
        await handle(lives_an_hour)
        clock.advance(SETTLED_MS - 1)
        await handle(lives_an_hour)
    assert (len(seen.offsets), expiry.expired) == (10, 0)


async def test_a_clock_that_was_put_right_counts_after_a_while(lives_an_hour: Record) -> None:
    clock, seen = ManualClock(), Seen()
    expiry = Expiry(clock=clock)
    handle = expiry.spare(seen.one)
    clock.set(clock.now_ms() + 86_400_000)
    await handle(lives_an_hour)
    clock.advance(SETTLED_MS)
    await handle(lives_an_hour)
    assert (len(seen.offsets), expiry.expired) == (1, 1)


async def test_time_that_truly_passes_counts_at_once(lives_an_hour: Record) -> None:
    clock, seen = ManualClock(), Seen()
    expiry = Expiry(clock=clock)
    handle = expiry.spare_batches(seen.many)
    clock.set(clock.now_ms() + 86_400_000)
    clock.advance(1)
    await handle([lives_an_hour])
    clock.set(clock.now_ms() - 86_400_000)
    clock.advance(3_600_000)
    await handle([lives_an_hour])
    assert (seen.offsets, expiry.expired) == ([0], 1)
