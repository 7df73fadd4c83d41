"""
The rules see the ends of logs while the store is open, and while it is not; the archive sees how far they are sound.

What an archive left out would be deleted on every broker.
"""

from pathlib import Path
from typing import Any

from headrace_mq.broker.replicas.bodies import SoundRange
from headrace_mq.broker.replicas.repairs.repairs import ASK_MS, WAIT_MS_MAX
from headrace_mq.cluster.operations import promotion
from headrace_mq.cluster.record import Registration
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES
from tests.unit.headrace_mq.broker.replicas.conftest import QUEUE, Place
from tests.unit.headrace_mq.broker.replicas.repairs.test_repairs import (
    LOG,
    content,
    entries,
    flip,
    pair,
    without_indexes,
)


async def test_ends_stay_known_while_the_store_is_closed(places: list[Any], record: Any) -> None:
    place = places[0]
    followers = await place.lead(record)
    log = place.logs.by_name["forever"]
    assert log.end == 0
    place.append(1)
    await place.until(lambda: log.end > 0)
    end = log.end
    followers.close()
    await place.replica.aclose()
    assert log.end == log.durable == end
    place.replica.open()
    assert place.logs.ends()["forever"] == end
    assert log.history.starts == [(followers.epoch, 0)]


async def test_an_archive_waits_for_damage_until_every_broker_that_is_there_has_none(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    followers = await pair(places, record)
    repairs = a.logs.repairs
    assert repairs.sound_until(LOG) is None
    bad = entries(a)[2].position
    flip(a, bad + 700)
    flip(b, bad + 700)
    repairs.suspect(LOG, bad, entries(a)[2].length)
    assert (repairs.sound_until(LOG), repairs.sound_until("transient")) == (bad, None)
    behind = bad + entries(a)[2].length
    assert (repairs.sound_until(LOG, behind - 1), repairs.sound_until(LOG, behind)) == (bad, None)
    repairs._clock.ms += WAIT_MS_MAX + 1_500
    assert repairs.sound_until(LOG) == bad, "no broker is there now"
    for _ in range(3):
        await b.step(followers)
    assert repairs.sound_until(LOG) is None, "the replica has none"


async def test_an_archive_does_not_wait_for_a_replica_that_cannot_pass_the_damage(
    places: list[Any], record: MemoryRecord, tmp_path: Path
) -> None:
    a, b = places
    followers = await pair(places, record)
    repairs = a.logs.repairs
    bad = entries(a)[2].position
    flip(a, bad + 700)
    repairs.suspect(LOG, bad, entries(a)[2].length)
    repairs._clock.ms += ASK_MS + 3_000
    assert repairs.sound_until(LOG) == bad, "no broker is there"
    empty = Place(tmp_path, "c")
    empty.member.on_record(await record.read())
    try:
        for _ in range(ASK_MS // 1_000):
            empty.ask(followers)
            assert repairs.sound_until(LOG) == bad, "others may come"
            repairs._clock.ms += 1_000
        empty.ask(followers)
        assert empty.logs.ends()[LOG] <= bad
        assert repairs.sound_until(LOG) is None
        await b.step(followers)
        assert repairs.sound_until(LOG) == bad, "one with a longer log is there"
    finally:
        await empty.replica.aclose()


async def test_an_archive_waits_for_the_start_that_reads_what_was_repaired(
    places: list[Any], record: MemoryRecord
) -> None:
    a, _ = places
    await pair(places, record)
    bad = entries(a)[2].position
    sound = content(a)
    flip(a, bad + 700)
    await a.replica.aclose()
    without_indexes(a)
    a.replica.open()
    repairs = a.logs.repairs
    assert repairs.sound_until(LOG) == bad
    length = next(one.length for one in a.logs.store.damage)
    start = SEGMENT_HEADER_BYTES + bad
    repairs.take([SoundRange(LOG, bad, sound[start : start + length])])
    await repairs.settled()
    assert repairs.figures.repaired == 1
    assert repairs.sound_until(LOG) == bad
    assert repairs.sound_until(LOG, bad + length) is None
    await a.replica.aclose()
    a.replica.open()
    assert a.logs.repairs.sound_until(LOG) is None


async def test_a_promoted_broker_says_that_messages_have_changed_from_where_its_log_ended(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    before = (await pair(places, record)).epoch
    both = a.end()
    # These only the first leader has, when the other one is promoted in its place.
    end = a.logs.ends()["forever"]
    a.append(6, 7)
    await a.until(lambda: a.logs.ends()["forever"] > end)
    known = [Registration(b.me, (), 0)]
    await record.propose(promotion(await record.read(), known, b.me.name))
    followers = await b.lead(record)
    assert before < followers.last_loss < followers.epoch
    b.append(*range(6, 16))
    await b.until(lambda: b.end() == both + 10)

    def changed(epoch: int) -> int | None:
        return b.logs.store.end_below(QUEUE, b.logs.common_ends(epoch))  # type: ignore[no-any-return]  # of a place

    told = [changed(epoch) for epoch in (before - 1, before, followers.epoch)]
    assert told == [None, both, both + 10]
    # The log tells it after a start as well.
    await b.replica.aclose()
    b.logs.opened(b.replica.open())
    assert changed(before) == both
