"""A damaged place gets the bytes of another broker, either way, and readers never have anything else."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq.broker.replicas.bodies import DamagedRange, FollowAnswer, SoundRange
from headrace_mq.broker.replicas.repairs import repairs as repairs_module
from headrace_mq.broker.replicas.repairs import wounds as wounds_module
from headrace_mq.broker.replicas.repairs.repairs import ASK_MS, WAIT_MS_MAX, RepairFigures
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES

QUEUE = QueueRef("orders", 0)
LOG = "forever"


class HandClock:
    ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms


async def pair(places: list[Any], record: Any, count: int = 6) -> Any:
    """A leader with messages, and a replica that has them; returns the leader's followers."""
    a, b = places
    for place in places:
        place.logs.repairs._clock = HandClock()
    followers = await a.lead(record)
    for number in range(count):
        a.append(number)
        end = a.logs.ends()[LOG]
        await a.until(lambda end=end: a.logs.ends()[LOG] > end)
    b.member.on_record(await record.read())
    while b.logs.ends() != a.logs.ends():
        await b.step(followers)
    await b.step(followers)
    followers.commit()
    return followers


def entries(place: Any) -> list[Any]:
    return list(place.logs.store._queues.get(QUEUE).index.find(0, 1 << 40))


def flip(place: Any, position: int, count: int = 1) -> None:
    """Rots bytes of the only segment's file."""
    assert len(place.logs.store.segments(LOG)) == 1
    rot_first(place, position, count)


def rot_first(place: Any, position: int, count: int = 1) -> None:
    """Rots bytes of the first segment's file."""
    segment = place.logs.store.segments(LOG)[0]
    path = Path(place.settings.directory, LOG, segment.name)
    with path.open("r+b") as file:
        file.seek(SEGMENT_HEADER_BYTES + position)
        old = file.read(count)
        file.seek(SEGMENT_HEADER_BYTES + position)
        file.write(bytes(byte ^ 0x55 for byte in old))


def without_indexes(place: Any) -> None:
    for index in Path(place.settings.directory, LOG).glob("*.index"):
        index.unlink()


def content(place: Any) -> bytes:
    path = Path(place.settings.directory, LOG, place.logs.store.segments(LOG)[0].name)
    return path.read_bytes()


def offsets(place: Any) -> list[int]:
    """What a reader that never waits gets."""
    found = [record.offset for batch in place.logs.store.read(QUEUE, 0, 1 << 20)
             for record in decode_records(batch)]  # fmt: skip
    return found


def read_now(place: Any, offset: int) -> list[int] | None:
    batches = place.logs.store.read_now(QUEUE, offset, 1)
    return None if batches is None else [one.offset for one in decode_records(batches[0])]


async def test_a_leader_heals_from_its_replica_while_a_reader_waits(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    told: list[Any] = []
    a.logs.store.on_visible = told.extend
    sound = content(a)
    flip(a, entries(a)[2].position + 700)
    assert read_now(a, 1) == [1]
    assert read_now(a, 2) is None, "the reader waits for the batch, and skips nothing"
    assert a.logs.repairs.figures == RepairFigures(0, 1, 0)
    await b.step(followers)  # the leader says what it wants
    await b.step(followers)  # the replica brings it
    assert told == [QUEUE]
    assert content(a) == sound
    assert read_now(a, 2) == [2]
    assert a.logs.store.damage == []
    assert a.logs.repairs.figures == followers.repairs == RepairFigures(1, 0, 0)


async def test_a_reader_goes_on_without_a_batch_that_no_broker_has(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    for place in places:
        flip(place, entries(a)[2].position + 700)
    assert read_now(a, 2) is None
    for _ in range(3):
        await b.step(followers)
    assert b.logs.repairs.figures.waiting == 1, "asked for it, the replica found its own damage"
    a.logs.repairs._clock.ms += WAIT_MS_MAX
    await b.step(followers)
    assert read_now(a, 2) == [3], "as a broker that runs alone does"
    assert [one.base_offset for one in a.logs.store.damage] == [2]
    assert a.logs.repairs.figures == RepairFigures(0, 1, 1)


async def test_a_batch_that_readers_left_out_comes_back_when_it_is_repaired_later(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    flip(a, entries(a)[0].position + 700)
    assert offsets(a) == [1, 2, 3, 4, 5], "who cannot wait leaves it out"
    assert a.logs.store.range(QUEUE) == (1, 6)
    for _ in range(2):
        await b.step(followers)
    assert offsets(a) == [0, 1, 2, 3, 4, 5]
    assert a.logs.store.damage == []


async def test_a_replica_heals_from_its_leader(places: list[Any], record: MemoryRecord) -> None:
    a, b = places
    followers = await pair(places, record)
    sound = content(b)
    # A mark, and a batch behind it.
    flip(b, entries(b)[3].position - 20, 100)
    b.logs.repairs.suspect(LOG, 0, 1 << 20)
    assert b.logs.repairs.figures.waiting == 1
    await b.step(followers)
    assert b.logs.repairs.figures == RepairFigures(1, 0, 0)
    await b.replica.aclose()
    b.replica.open()
    assert b.logs.store.damage == []
    assert offsets(b) == offsets(a) == [0, 1, 2, 3, 4, 5]
    assert len(content(b)) == len(sound)


async def test_a_replica_that_starts_with_damage_takes_the_messages_in_again(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    position = entries(b)[2].position
    await b.replica.aclose()
    b.replica.open()  # the log's end is known as durable from here on
    flip(b, position + 700)
    await b.replica.aclose()
    without_indexes(b)
    b.replica.open()
    assert offsets(b) == [0, 1, 3, 4, 5]
    for _ in range(2):
        await b.step(followers)
    assert offsets(b) == [0, 1, 2, 3, 4, 5]
    assert b.logs.store.damage == []
    assert b.logs.ends() == a.logs.ends()


async def test_a_start_takes_in_what_was_written_before_a_kill(
    places: list[Any], record: MemoryRecord
) -> None:
    b = places[1]
    await pair(places, record)
    position = entries(b)[2].position
    await b.replica.aclose()
    b.replica.open()
    flip(b, position + 700)
    await b.replica.aclose()
    without_indexes(b)
    b.replica.open()
    assert offsets(b) == [0, 1, 3, 4, 5]
    # The sound bytes are on the disk, but the process dies before it opens the store again; the index tells of damage.
    await b.replica.aclose()
    b.replica.open()
    flip(b, position + 700)
    b.logs.repairs.opened(b.logs.store)
    assert b.logs.repairs.is_stale
    await b.replica.aclose()
    b.replica.open()
    assert offsets(b) == [0, 1, 2, 3, 4, 5]


async def test_a_replica_refuses_a_damaged_batch_and_the_leader_hears_of_it(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    end = b.logs.ends()[LOG]
    a.append(6)
    await a.until(lambda: a.logs.ends()[LOG] > end)
    flip(a, a.logs.ends()[LOG] - 100)
    with pytest.raises(DataCorrupt):
        await b.step(followers)
    assert b.logs.ends()[LOG] == end, "nothing of it is written"
    with pytest.raises(DataCorrupt):
        await b.step(followers)
    assert a.logs.repairs.figures.waiting == 1


@pytest.mark.parametrize("change", ["rot", "other place", "nothing", "too much"])
async def test_a_leader_writes_nothing_that_is_not_the_batch(
    places: list[Any], record: MemoryRecord, change: str
) -> None:
    a, b = places
    await pair(places, record)
    one, other = entries(a)[2:4]
    sound = b.logs.store.mender.sound(LOG, one.position, one.length, 1 << 20)
    flip(a, one.position + 700)
    before = content(a)
    a.logs.repairs.suspect(LOG, one.position, one.length)
    data = {
        "rot": sound[:-9] + b"!" + sound[-8:],
        "other place": b.logs.store.mender.sound(LOG, other.position, other.length, 1 << 20),
        "nothing": b"",
        "too much": sound + bytes(100),
    }[change]
    a.logs.repairs.take([SoundRange(LOG, one.position, data)])
    await a.logs.repairs.settled()
    assert content(a) == before
    assert a.logs.repairs.figures.repaired == 0
    a.logs.repairs.take([SoundRange(LOG, one.position, sound)])
    await a.logs.repairs.settled()
    assert content(a) != before
    assert a.logs.repairs.figures.repaired == 1


async def test_bytes_for_a_place_that_is_sound_change_nothing(
    places: list[Any], record: MemoryRecord
) -> None:
    a = places[0]
    await pair(places, record)
    one = entries(a)[2]
    before = content(a)
    a.logs.repairs.take([SoundRange(LOG, one.position, b"x" * one.length)])
    a.logs.repairs.suspect(LOG, 0, 1 << 20)
    a.logs.repairs.suspect("no such log", 0, 1 << 20)
    assert content(a) == before
    assert a.logs.repairs.figures == RepairFigures(0, 0, 0)


async def test_a_peer_is_asked_only_for_what_it_was_confirmed_to_have_and_seldom(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    one = entries(a)[2]
    flip(a, one.position + 700)
    repairs = a.logs.repairs
    repairs.suspect(LOG, 0, 1 << 20)
    end = one.position + one.length
    assert repairs.wanted("c", {LOG: end - 1}) == []
    assert repairs.wanted("c", {LOG: end}) == [DamagedRange(LOG, one.position, one.length)]
    assert repairs.wanted("c", {LOG: end}) == []
    assert len(repairs.wanted("d", {LOG: end})) == 1
    repairs._clock.ms += ASK_MS
    assert len(repairs.wanted("c", {LOG: end})) == 1
    b.ask(followers)
    assert decode(FollowAnswer, b.caller.answer_body).wanted


async def test_a_leader_waits_for_its_peers_only_if_there_are_some(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    await pair(places, record)
    repairs = a.logs.repairs
    flip(a, entries(a)[2].position + 700)
    repairs.suspect(LOG, 0, 1 << 20)
    assert not repairs.may_come, "what the start did not leave out comes without another start"
    next(iter(repairs._wounds.values())).unindexed = True
    repairs.renew()
    assert not repairs.may_come, "who was heard in an earlier term may be gone"
    repairs.heard(b.replica.report(b.member))
    assert repairs.may_come
    repairs._clock.ms += WAIT_MS_MAX
    assert not repairs.may_come
    repairs._clock.ms += 10 * WAIT_MS_MAX
    repairs.renew()
    assert not repairs.may_come, "none was heard"


async def test_a_leader_asks_for_another_start_once_in_a_while(
    places: list[Any], record: MemoryRecord, tmp_path: Path
) -> None:
    a, _ = places
    await pair(places, record)
    repairs = a.logs.repairs
    assert not repairs.asks_for_another_start()
    repairs._stale.add(tmp_path / "x.log")
    assert repairs.asks_for_another_start()
    assert not repairs.asks_for_another_start()
    repairs._stale.clear()


async def test_a_question_with_repairs_fits_into_the_leaders_frame(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record, count=8)
    sound = content(a)
    damaged = [entries(a)[number] for number in range(0, 8, 2)]
    for one in damaged:
        flip(a, one.position + 700)
        a.logs.repairs.suspect(LOG, one.position, one.length)
    assert a.logs.repairs.figures.waiting == 4
    await b.step(followers)  # the leader says what it wants
    limit = 2 * damaged[0].length + 1_500
    for left in (2, 0):
        question = b.replica.question(b.member, limit)
        assert len(encode(question)) <= limit
        assert len(question.found) == 2, "as many as fit, from the first one on"
        asked = Frame(RequestCode.FOLLOW, 1, 0, 1, memoryview(encode(question)))
        followers.follow(b.caller, asked)
        await a.logs.repairs.settled()
        assert a.logs.repairs.figures.waiting == left
        await b.replica.take(b.member, decode(FollowAnswer, b.caller.answer_body))
    assert content(a) == sound


async def test_a_batch_that_fits_into_no_question_does_not_hold_up_the_others(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    await pair(places, record)
    big = entries(b)[1]
    small = DamagedRange(LOG, big.position + big.length, 32)  # a group mark
    wanted = [DamagedRange(LOG, big.position, big.length), small]
    found = b.logs.repairs.supply(wanted, big.length - 1)
    assert [len(one.data) for one in found] == [0, 32]
    assert a.logs.repairs.supply([], 100) == []


async def test_a_leader_waits_for_a_replica_that_comes_late(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    repairs = a.logs.repairs
    flip(a, entries(a)[2].position + 700)
    repairs.suspect(LOG, 0, 1 << 20)
    next(iter(repairs._wounds.values())).unindexed = True  # as a start finds it
    repairs.renew()  # the term begins
    repairs._clock.ms += 5 * WAIT_MS_MAX
    assert not repairs.may_come
    b.ask(followers)
    assert decode(FollowAnswer, b.caller.answer_body).wanted
    assert repairs.may_come, "its bytes are on their way"
    repairs._clock.ms += WAIT_MS_MAX
    b.ask(followers)
    assert not repairs.may_come


async def test_a_leader_waits_for_a_replica_that_needs_long_to_catch_up(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    await pair(places, record)
    repairs = a.logs.repairs
    flip(a, entries(a)[2].position + 700)
    repairs.suspect(LOG, 0, 1 << 20)
    next(iter(repairs._wounds.values())).unindexed = True
    repairs.renew()
    report = b.replica.report(b.member)
    behind = [replace(log, counted=0) for log in report.logs]
    for _ in range(10):
        repairs._clock.ms += WAIT_MS_MAX // 2
        repairs.heard(replace(report, logs=behind))
    assert not repairs.may_come
    repairs.heard(report)
    assert repairs.may_come
    # Asked, it says that it has none.
    assert repairs.wanted(report.member, {LOG: 1 << 20})
    place = entries(a)[2].position
    repairs.take([SoundRange(LOG, place, b"")], report.member)
    assert not repairs.may_come


async def test_a_reader_of_a_place_above_what_is_remembered_goes_on_at_once(
    places: list[Any], record: MemoryRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = places[0]
    await pair(places, record)
    monkeypatch.setattr(repairs_module, "PLACES_MAX", 1)
    for number in (1, 2):
        flip(a, entries(a)[number].position + 700)
    assert read_now(a, 1) is None
    assert read_now(a, 2) == [3]


async def test_a_store_opens_with_more_damage_than_is_remembered(
    places: list[Any], record: MemoryRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = places[1]
    await pair(places, record)
    damaged = [entries(b)[number].position for number in (1, 3)]
    await b.replica.aclose()
    b.replica.open()
    for position in damaged:
        flip(b, position + 700)
    await b.replica.aclose()
    without_indexes(b)
    b.replica.open()
    assert offsets(b) == [0, 2, 4, 5]
    # Sound bytes were written, and the process died.
    for position in damaged:
        flip(b, position + 700)
    monkeypatch.setattr(repairs_module, "PLACES_MAX", 0)
    b.logs.repairs.opened(b.logs.store)
    assert b.logs.repairs.is_stale


async def test_a_reader_of_damage_that_was_known_before_is_woken(
    places: list[Any], record: MemoryRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = places[0]
    await pair(places, record)
    told: list[Any] = []
    a.logs.store.on_visible = told.extend
    monkeypatch.setattr(wounds_module, "WAIT_MS_MAX", 1)
    flip(a, entries(a)[2].position + 700)
    a.logs.repairs.suspect(LOG, 0, 1 << 20)
    assert read_now(a, 2) is None
    await a.until(lambda: told == [QUEUE])
    assert read_now(a, 2) is None, "the time is not over: it is woken again"
    a.logs.repairs._clock.ms += 1
    told.clear()
    await a.until(lambda: told == [QUEUE])
    assert read_now(a, 2) == [3]


async def test_a_reader_goes_on_as_soon_as_each_broker_has_said_that_it_has_none(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    told: list[Any] = []
    a.logs.store.on_visible = told.extend
    for place in places:
        flip(place, entries(a)[2].position + 700)
    assert read_now(a, 2) is None
    await b.step(followers)
    assert told == []
    await b.step(followers)
    assert told == [QUEUE]
    assert read_now(a, 2) == [3]


async def test_damage_of_deleted_segments_is_forgotten(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record, count=40)
    first, *_ = entries(a)
    rot_first(a, first.position + 700)
    rot_first(b, first.position + 700)
    a.logs.repairs.suspect(LOG, first.position, first.length)
    assert a.logs.repairs.figures.waiting == 1
    followers.commit()
    assert a.logs.store.delete_segments(LOG, a.logs.store.segments(LOG)[1].base)
    await b.step(followers)
    assert a.logs.repairs.figures == RepairFigures(0, 0, 0)
