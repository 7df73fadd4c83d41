"""What a consumer does with what no reader can decode: goes on, counts, tells."""

import struct
from typing import Any

import google_crc32c
import pytest
from structlog.testing import capture_logs

from headrace_mq._net.link import Link
from headrace_mq.client.fetch.damage import FIRST_HEADER, Damaged, Damages, is_marker
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import assign, read_header
from headrace_mq.testing.hostile import hostile_batches

A = QueueRef("t", 0)
MISSING = "messages cannot be read and are left out"


@pytest.fixture
async def watched(watch: Any, link: Link, clock: Any) -> Any:
    return watch(link, clock)


def undecodable(batch: bytes) -> bytes:
    """A batch in the place of another one, with a payload that is no msgpack."""
    header = read_header(batch)
    bad = hostile_batches(header.queue)["numbers for keys"]
    struct.pack_into("<I", bad, 56, header.count)
    struct.pack_into("<I", bad, 48, google_crc32c.value(bytes(bad[52:])))
    assign(
        bad, base_offset=header.base_offset, position=header.position,
        appended_at_ms=header.appended_at_ms, epoch=header.epoch,
    )  # fmt: skip
    return bytes(bad)


async def test_a_batch_that_cannot_be_decoded_is_left_out_and_reported_once(
    broker: Any, watched: Any
) -> None:
    heard: list[Damaged] = []
    damage = watched.shares.damage
    damage.listen(lambda one: 1 / 0)
    damage.listen(heard.append)
    broker.append(A, [b"good"])
    broker.append(A, [b"bad", b"bad"])
    broker.batches[A][1] = undecodable(broker.batches[A][1])
    broker.append(A, [b"after"])
    with capture_logs() as logs:
        watched.start(A)
        bodies = []
        while len(bodies) < 2:
            bodies += [record.body for record in await watched.poll()]
        watched.shares.seek(A, 1)
        watched.pulling.pull_soon()
        assert await watched.offsets() == [3]
    assert bodies == [b"good", b"after"]
    assert watched.errors == []
    ((queue, first, behind, reason),) = heard
    assert (queue, first, behind) == (A, 1, 3)
    assert "does not decode" in reason
    assert (damage.batches, damage.messages) == (1, {"t": 2})
    (told,) = [one for one in logs if one["event"] == MISSING]
    assert (told["topic"], told["queue_id"], told["first"], told["messages"]) == ("t", 0, 1, 2)


@pytest.mark.parametrize("in_columns", [False, True])
async def test_a_marker_stands_for_a_batch_that_cannot_be_decoded_if_the_application_asks(
    broker: Any, watched: Any, *, in_columns: bool
) -> None:
    watched.shares.damage.marks = True
    watched.shares.in_columns = in_columns
    broker.append(A, [b"bad", b"bad"])
    broker.batches[A][0] = undecodable(broker.batches[A][0])
    watched.start(A)
    (marker,) = await watched.poll()
    assert is_marker(marker)
    assert (marker.offset, marker.headers[FIRST_HEADER]) == (1, "0")
    assert not watched.shares.finish(A, 0)
    watched.shares.finish(A, 1)
    assert watched.shares.to_commit() == {A: 2}


async def test_a_marker_stands_for_what_the_broker_has_lost(broker: Any, watched: Any) -> None:
    watched.shares.damage.marks = True
    broker.append(A, [b"good"])
    broker.append(A, [b"lost", b"lost"])
    broker.append(A, [b"after"])
    del broker.batches[A][1]
    watched.start(A)
    records: list[Any] = []
    while len(records) < 3:
        records += await watched.poll()
    assert [(one.offset, one.body, is_marker(one)) for one in records] == [
        (0, b"good", False),
        (2, b"", True),
        (3, b"after", False),
    ]
    assert records[1].headers[FIRST_HEADER] == "1"


def test_damage_that_is_met_again_is_counted_once() -> None:
    damages = Damages()
    for first, behind in ((0, 3), (0, 3), (3, 5)):
        damages.tell(Damaged(A, first, behind, "no reason"))
    assert (damages.batches, damages.messages) == (2, {"t": 5})
    assert Damaged(A, 3, 5, "why").sentence == "the messages from offset 3 to 4 cannot be read: why"
