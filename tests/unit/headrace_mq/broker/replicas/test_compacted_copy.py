"""A replica collects the pieces of one segment, and begins again where they are of another one."""

from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq.broker.replicas.bodies import LogEnd, LogPart
from headrace_mq.broker.replicas.compacted_copy import REFUSED_MS_MIN
from headrace_mq.broker.replicas.log_parts import log_part
from headrace_mq.cluster.frames import Follow, Send
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.log.commit_log import COMPACT

PIECE_BYTES = 1_000


@pytest.fixture
async def copying(places: list[Any], record: Any) -> tuple[Any, Any, Any]:
    """Two brokers, of which the first one leads and has compacted, and how to ask it for the next piece."""
    a, b = places
    followers = await a.lead(record)
    await a.put(*"abcabcabc")
    followers.commit()
    await a.until(lambda: all(one.indexed for one in a.sealed()))
    assert await a.compact(followers.bounds(1_000))
    b.member.on_record(await record.read())

    def next_piece() -> LogPart:
        asked = b.replica._copy.log_end(b.member.follow(COMPACT), -1)
        return log_part(a.logs, asked, Send(followers.epoch, COMPACT, asked.end, 0), PIECE_BYTES)

    return b.replica._copy, next_piece, followers.epoch


async def test_a_segment_comes_piece_by_piece(copying: tuple[Any, Any, Any]) -> None:
    copy, next_piece, epoch = copying
    pieces = 1
    while (whole := copy.take(next_piece(), epoch)) is None:
        pieces += 1
    assert pieces > 1
    assert whole.is_whole


async def test_pieces_of_another_file_or_epoch_begin_again(copying: tuple[Any, Any, Any]) -> None:
    copy, next_piece, epoch = copying
    first = next_piece()
    assert copy.take(first, epoch) is None
    asked = copy.log_end(Follow(epoch, None, COMPACT, 0, 0), -1)  # type: ignore[arg-type]  # only what is used of it
    assert (asked.copied, asked.identity) == (PIECE_BYTES, first.identity)
    # Of another epoch it has nothing.
    assert copy.log_end(Follow(epoch + 1, None, COMPACT, 0, 0), -1).copied == 0  # type: ignore[arg-type]  # only what is used of it
    # A late piece is of no use.
    assert copy.take(replace(first, at=1), epoch) is None
    assert next_piece().at == 0
    assert copy.take(next_piece(), epoch) is None
    assert next_piece().at == PIECE_BYTES
    copy.forget()
    assert next_piece().at == 0


class HandClock:
    ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms


async def test_a_damaged_segment_is_copied_again_later(copying: tuple[Any, Any, Any]) -> None:
    copy, next_piece, epoch = copying
    copy._clock = HandClock()
    while (piece := next_piece()).at + PIECE_BYTES < piece.file_bytes:
        copy.take(piece, epoch)
    damaged = replace(piece, piece=piece.piece[:-1] + b"?")
    with pytest.raises(DataCorrupt, match="cannot be used"):
        copy.take(damaged, epoch)
    assert copy.is_held_off
    assert next_piece().piece == b"", "nothing comes for now"
    copy._clock.ms += REFUSED_MS_MIN
    assert not copy.is_held_off
    while (piece := next_piece()).at + PIECE_BYTES < piece.file_bytes:
        copy.take(piece, epoch)
    with pytest.raises(DataCorrupt, match="cannot be used"):
        copy.take(replace(piece, piece=piece.piece[:-1] + b"?"), epoch)
    copy._clock.ms += REFUSED_MS_MIN
    assert next_piece().piece == b"", "the second time it waits longer"
    # Another file of the leader is another matter.
    copy._refused = copy._refused._replace(identity=1)
    assert next_piece().at == 0
    while (whole := copy.take(next_piece(), epoch)) is None:
        pass
    assert whole.is_whole
    assert not copy.is_held_off


async def test_logs_that_are_not_compacted_are_asked_for_by_their_ends(
    copying: tuple[Any, Any, Any],
) -> None:
    copy, _, epoch = copying
    frame = Follow(epoch, None, "forever", 9, 2)  # type: ignore[arg-type]  # only what is used of it
    assert copy.log_end(frame, 7) == LogEnd("forever", 9, 2, 7)
