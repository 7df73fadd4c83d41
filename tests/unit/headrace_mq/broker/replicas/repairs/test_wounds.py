"""A damaged place waits for the peers that may have its bytes, and for the disk in a thread."""

import threading
from typing import Any

from structlog.testing import capture_logs

from headrace_mq.broker.replicas.bodies import SoundRange
from headrace_mq.broker.replicas.repairs.repairs import ASK_MS, RepairFigures
from headrace_mq.broker.replicas.repairs.wounds import WAIT_MS_MAX, Wound
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.message import QueueRef
from headrace_mq.store.message_store import Damage
from headrace_mq.store.segment.segment import SyncFailed
from tests.unit.headrace_mq.broker.replicas.repairs.test_repairs import (
    LOG,
    entries,
    flip,
    pair,
    read_now,
)

DAMAGE = Damage("forever", 100, 32, "rot", QueueRef("orders", 0), 7, 1)


def test_a_place_waits_for_each_peer_that_is_there() -> None:
    wound = Wound(DAMAGE, 1_000, unindexed=False)
    assert wound.queues == {QueueRef("orders", 0)}
    assert wound.until_ms({}) == 0, "none is there"
    assert wound.until_ms({"b": 400}) == 1_000 + WAIT_MS_MAX
    assert wound.until_ms({"b": 400, "c": 5_000}) == 5_000 + WAIT_MS_MAX
    wound.hoped_ms["b"] = 7_000
    assert wound.until_ms({"b": 400, "c": 5_000}) == 7_000 + WAIT_MS_MAX
    wound.empty.add("b")
    assert wound.until_ms({"b": 400, "c": 5_000}) == 5_000 + WAIT_MS_MAX
    wound.empty.add("c")
    assert wound.until_ms({"b": 400, "c": 5_000}) == 0, "all of them have none"


def test_a_place_forgets_what_the_peers_of_an_earlier_term_said() -> None:
    wound = Wound(DAMAGE, 1_000, unindexed=True)
    wound.hoped_ms["b"] = wound.asked_ms["b"] = 2_000
    wound.empty.add("b")
    wound.renew(9_000)
    assert (wound.hoped_ms, wound.asked_ms, wound.empty) == ({}, {}, set())
    assert wound.until_ms({"b": 400}) == 9_000 + WAIT_MS_MAX


def test_a_place_of_no_batch_has_no_readers() -> None:
    assert Wound(Damage("forever", 0, 9, "rot"), 0, unindexed=True).queues == set()


async def test_a_slow_disk_does_not_hold_up_the_loop_of_a_broker_that_is_repaired(
    places: list[Any], record: MemoryRecord
) -> None:
    """Its lease would be over."""
    a, b = places
    await pair(places, record)
    one = entries(a)[2]
    sound = b.logs.store.mender.sound(LOG, one.position, one.length, 1 << 20)
    flip(a, one.position + 700)
    assert read_now(a, 2) is None
    repairs, mender, disk = a.logs.repairs, a.logs.store.mender, threading.Event()
    write = mender.write

    def slow(patch: Any) -> None:
        assert disk.wait(60)
        write(patch)

    mender.write = slow
    repairs.take([SoundRange(LOG, one.position, sound)], "b")
    # The disk is at it: no one is asked for the place again, and what comes twice is not written twice.
    assert repairs.wanted("b", {LOG: 1 << 20}) == []
    repairs.take([SoundRange(LOG, one.position, sound)], "b")
    assert repairs.figures == RepairFigures(0, 1, 0)
    assert read_now(a, 2) is None
    disk.set()
    await repairs.settled()
    assert repairs.figures == RepairFigures(1, 0, 0)
    assert read_now(a, 2) == [2]


async def test_a_place_that_the_disk_refuses_stays_damaged_and_is_asked_for_again(
    places: list[Any], record: MemoryRecord
) -> None:
    a, b = places
    await pair(places, record)
    one = entries(a)[2]
    sound = b.logs.store.mender.sound(LOG, one.position, one.length, 1 << 20)
    flip(a, one.position + 700)
    repairs, mender = a.logs.repairs, a.logs.store.mender
    repairs.suspect(LOG, one.position, one.length)

    def refuse(_patch: Any) -> None:
        raise SyncFailed("the disk is broken")

    mender.write = refuse
    repairs.wanted("b", {LOG: 1 << 20})
    for _ in range(2):
        with capture_logs() as lines:
            repairs.take([SoundRange(LOG, one.position, sound)], "b")
            await repairs.settled()
    assert lines == [], "said once"
    assert repairs.figures == RepairFigures(0, 1, 0)
    repairs._clock.ms += ASK_MS
    assert len(repairs.wanted("b", {LOG: 1 << 20})) == 1
