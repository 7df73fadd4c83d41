"""Sound bytes are written in place, and a cut at any moment leaves the old damage or the sound batch."""

import errno
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.store.message_store import Damage
from headrace_mq.store.replication.epochs import EpochHistory
from headrace_mq.store.replication.mend import Patch, read_part, remove_indexes
from headrace_mq.store.segment.log_walk import SECTOR_BYTES
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES, SyncFailed

LOG = "forever"
QUEUE = QueueRef("orders", 0)
EPOCHS = EpochHistory([(1, 0)])
BODIES = [bytes([65 + number]) * 1_500 for number in range(5)]

Make = Callable[..., Any]


async def two(new_copy: Make, make_batch: Make) -> list[Any]:
    """Two copies of a log with a batch per body, and the place of each batch."""
    a, b = new_copy("a"), new_copy("b")
    for body in BODIES:
        await a.append(make_batch(body))
    await b.pull(a)
    places = a.store._queues.get(QUEUE).index.find(0, 1 << 40)
    return [a, b, places]


def file_of(copy: Any) -> Path:
    path: Path = copy.settings.directory / LOG / copy.store.segments(LOG)[0].name
    return path


def rot(copy: Any, position: int, length: int) -> bytes:
    """Changes bytes of the file; returns the whole file as it was."""
    path, at = file_of(copy), SEGMENT_HEADER_BYTES + position
    old = path.read_bytes()
    bad = bytes(byte ^ 0x55 for byte in old[at : at + length])
    path.write_bytes(old[:at] + bad + old[at + length :])
    return old


def damage_of(place: Any, **changes: Any) -> Damage:
    return Damage(LOG, place.position, place.length, "rot", QUEUE, place.base, 1)._replace(
        **changes
    )


async def test_a_patch_makes_the_file_what_it_was(new_copy: Make, make_batch: Make) -> None:
    a, b, places = await two(new_copy, make_batch)
    place = places[2]
    old = rot(a, place.position + 200, 900)
    assert a.store.mender.damage_in(LOG, 0, 1 << 20) == [
        damage_of(place, reason="a batch fails its checksum")
    ]
    data = b.store.mender.sound(LOG, place.position, place.length, 1 << 20)
    a.store.mender.write(a.store.mender.patch(damage_of(place), data, EPOCHS))
    assert file_of(a).read_bytes() == old
    assert a.store.mender.damage_in(LOG, 0, 1 << 20) == []
    assert a.bodies(QUEUE) == BODIES


async def test_a_cut_within_the_write_leaves_the_damage_or_the_batch(
    new_copy: Make, make_batch: Make
) -> None:
    """Any sectors of the write may be on the disk when the power goes."""
    a, b, places = await two(new_copy, make_batch)
    place = places[2]
    sound = file_of(a).read_bytes()
    # Two sectors rot in two places, the head among them in one case.
    for begin in (0, 700):
        rot(a, place.position + begin, 900)
        data = b.store.mender.sound(LOG, place.position, place.length, 1 << 20)
        patch = a.store.mender.patch(damage_of(place), data, EPOCHS)
        bad = file_of(a).read_bytes()
        first = SEGMENT_HEADER_BYTES + patch.position
        sectors = range(first // SECTOR_BYTES, (first + len(data) - 1) // SECTOR_BYTES + 1)
        written = [
            each for count in range(len(sectors) + 1) for each in combinations(sectors, count)
        ]
        outcomes = set()
        for some in written:
            mixed = bytearray(bad)
            for sector in some:
                at = slice(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
                mixed[at] = sound[at]
            file_of(a).write_bytes(mixed)
            damaged = a.store.mender.damage_in(LOG, 0, len(sound))
            assert [one.position for one in damaged] in ([], [place.position])
            assert bool(damaged) == (mixed != sound), "never silently anything else"
            outcomes.add(bool(damaged))
            # What the process finds at its next start it can repair again.
            for one in damaged:
                again = a.store.mender.patch(damage_of(place, length=one.length), data, EPOCHS)
                a.store.mender.write(again)
            assert file_of(a).read_bytes() == sound
        assert outcomes == {True, False}
        assert len(written) == 2 ** len(sectors)


async def test_a_start_after_a_cut_serves_the_batch_or_leaves_it_out(
    new_copy: Make, make_batch: Make
) -> None:
    a, b, places = await two(new_copy, make_batch)
    place = places[2]
    await a.store.aclose()  # from here on all of it is known as durable
    a.open()
    sound = rot(a, place.position + 200, 1_200)
    bad = file_of(a).read_bytes()
    at = SEGMENT_HEADER_BYTES + place.position
    for done in range(0, place.length + SECTOR_BYTES, SECTOR_BYTES):
        await a.store.aclose()
        path = a.settings.directory / LOG / "00000000000000000000.log"
        end = min(done, place.length)
        path.write_bytes(bad[:at] + sound[at : at + end] + bad[at + end :])
        remove_indexes(a.files, [path])
        a.open()
        whole = a.bodies(QUEUE)
        assert whole in (BODIES, BODIES[:2] + BODIES[3:])
        assert bool(a.store.damage) == (whole != BODIES)
    assert whole == BODIES
    assert b.bodies(QUEUE) == BODIES


async def test_marks_stay_those_of_this_disk(new_copy: Make, make_batch: Make) -> None:
    a, b, places = await two(new_copy, make_batch)
    mark = places[2].position - 32
    rot(b, mark + 5, 200)
    (damage,) = b.store.mender.damage_in(LOG, 0, 1 << 20)
    assert (damage.position, damage.queue) == (mark, None)
    data = a.store.mender.sound(LOG, mark, damage.length, 1 << 20)
    b.store.mender.write(b.store.mender.patch(damage, data, EPOCHS))
    assert b.store.mender.damage_in(LOG, 0, 1 << 20) == []
    assert b.batches() == a.batches()


async def test_bytes_that_are_not_those_of_the_place_are_refused(
    new_copy: Make, make_batch: Make
) -> None:
    a, b, places = await two(new_copy, make_batch)
    place, mender = places[2], a.store.mender
    data = b.store.mender.sound(LOG, place.position, place.length, 1 << 20)
    damage = damage_of(place)
    refused = [
        (damage, b"", "0 bytes"),
        (damage, data + b"x", "bytes came for"),
        (damage, data[:-1] + b"?", "fails its checksum"),
        (damage, data[:-1], "batch"),
        (damage_of(places[3]), data, "another place"),
        (damage._replace(base_offset=9), data, "another batch"),
        (damage._replace(position=1 << 30), data, "any more"),
    ]
    for one, given, sentence in refused:
        with pytest.raises(DataCorrupt, match=sentence):
            mender.patch(one, given, EPOCHS)
    # A leader of another epoch wrote at the same place.
    for epochs in (EpochHistory([(2, 0), (5, place.position)]), EpochHistory()):
        with pytest.raises(DataCorrupt, match="epoch"):
            mender.patch(damage, data, epochs)
    assert mender.patch(damage, data, EpochHistory([(4, 0)])).data == data, "adopted epochs"


async def test_a_batch_with_offsets_of_others_is_refused(new_copy: Make, make_batch: Make) -> None:
    a, b = new_copy("a"), new_copy("b")
    await a.append(make_batch(b"x" * 1_000, b"y" * 1_000))
    await a.append(make_batch(b"z" * 1_000))
    # Another history, in which the same place has other offsets.
    await b.append(make_batch(b"x" * 1_000))
    await b.append(make_batch(b"z" * 1_000))
    (_, place) = b.store._queues.get(QUEUE).index.find(0, 1 << 40)
    data = b.store.mender.sound(LOG, place.position, place.length, 1 << 20)
    damage = Damage(LOG, place.position, len(data), "rot")
    with pytest.raises(DataCorrupt, match=r"offsets that are known|any more"):
        a.store.mender.patch(damage, data, EPOCHS)


async def test_a_peer_gives_only_sound_whole_entries(new_copy: Make, make_batch: Make) -> None:
    a, _, places = await two(new_copy, make_batch)
    first, third, mender = places[0], places[2], a.store.mender
    everything = mender.sound(LOG, 0, 1 << 20, 1 << 20)
    assert len(everything) == a.end()
    assert len(mender.sound(LOG, 0, 1 << 20, 2_000)) == first.position + first.length + 32
    assert mender.sound(LOG, first.position, first.length, 1) != b"", "one entry at least"
    assert mender.sound(LOG, first.position, first.length - 1, 1 << 20) == b""
    assert mender.sound(LOG, 1 << 30, 10, 1 << 20) == b""
    assert mender.sound("compact", 0, 10, 1 << 20) == b""
    rot(a, third.position + 300, 3)
    assert mender.sound(LOG, third.position, third.length, 1 << 20) == b""
    assert len(mender.sound(LOG, 0, 1 << 20, 1 << 20)) == third.position


async def test_a_file_that_was_replaced_is_not_written(new_copy: Make, make_batch: Make) -> None:
    a, b, places = await two(new_copy, make_batch)
    place = places[2]
    data = b.store.mender.sound(LOG, place.position, place.length, 1 << 20)
    rot(a, place.position + 200, 3)
    patch = a.store.mender.patch(damage_of(place), data, EPOCHS)
    path = file_of(a)
    content = bytearray(path.read_bytes())
    content[100] ^= 1  # of the header
    other = path.with_name("other")
    other.write_bytes(content)
    other.rename(path)
    with pytest.raises(DataCorrupt, match="another file"):
        a.store.mender.write(patch)
    assert path.read_bytes() == bytes(content)


async def test_a_disk_that_refuses_is_no_repair(
    new_copy: Make, make_batch: Make, files: Any
) -> None:
    a, b = new_copy("a", files=files), new_copy("b")
    for body in BODIES:
        await a.append(make_batch(body))
    await b.pull(a)
    place = a.store._queues.get(QUEUE).index.find(2, 1)[0]
    data = b.store.mender.sound(LOG, place.position, place.length, 1 << 20)
    rot(a, place.position + 200, 3)
    patch = a.store.mender.patch(damage_of(place), data, EPOCHS)
    files.sync_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(SyncFailed):
        a.store.mender.write(patch)
    files.sync_error = None
    files.write_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        a.store.mender.write(patch)
    files.write_error = None
    a.store.mender.write(patch)
    assert isinstance(patch, Patch)
    assert a.bodies(QUEUE) == BODIES


async def test_a_scrub_reads_a_log_in_parts_and_finds_what_is_damaged(
    new_copy: Make, make_batch: Make
) -> None:
    a = new_copy("a")
    for number in range(12):
        await a.append(make_batch(bytes([65 + number]) * 12_000))
    assert len(a.store.segments(LOG)) > 1
    place = a.store._queues.get(QUEUE).index.find(1, 1)[0]
    rot(a, place.position + 200, 3)
    at, found, parts = 0, [], 0
    while (part := a.store.mender.scrub_part(LOG, at, 5_000)) is not None:
        damaged, at = read_part(a.files, part)
        found += damaged
        parts += 1
    assert at == a.end()
    assert parts > 8
    assert [(one.position, one.length) for one in found] == [place.place]
    assert a.store.mender.segment_paths(LOG, place.position) == {file_of(a)}
    assert a.store.mender.segment_paths("compact", 0) == set()
