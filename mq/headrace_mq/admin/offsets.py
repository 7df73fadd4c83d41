"""
Administration of offsets: list those of groups, and move them.

A part of `AdminClient`.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from headrace_mq.admin.connection import AdminConnection
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    CloneOffsets,
    DeleteGroup,
    OffsetMoves,
    OffsetsAt,
    ResetOffsets,
)
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    GetOffsets,
    OffsetsAnswer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.keys import topics_in_parts

__all__ = ["OffsetAdministration", "Target"]

Target = Literal["earliest", "latest", "offset", "time", "shift"]


def _by_queue(answer: OffsetsAnswer) -> dict[QueueRef, int]:
    return {QueueRef(item.topic, item.queue_id): item.offset for item in answer.offsets}


class OffsetAdministration(AdminConnection):
    """The calls about the offsets of groups."""

    async def offsets(self, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
        """The next offset a group will read of every queue of the topics; -1: never committed."""
        found: dict[QueueRef, int] = {}
        for names in topics_in_parts(topics):
            asked = GetOffsets(group=group, topics=names)
            answer = await self._ask(OffsetsAnswer, RequestCode.GET_OFFSETS, asked)
            found |= _by_queue(answer)
        return found

    async def set_offsets(self, group: str, offsets: Mapping[QueueRef, int]) -> None:
        """Moves a group to other offsets, forth or back; its consumers must be stopped.

        Raises:
            GroupNotEmpty: the group has members, which would overwrite the offsets.
            OffsetOutOfRange: a queue does not reach that far; nothing was changed.
            InvalidArgument: more than 4,096 offsets; nothing was changed.
        """
        asked = CommitOffsets(
            group=group,
            member="",
            generation=0,
            offsets=[CommittedOffset(*queue, offset) for queue, offset in offsets.items()],
        )
        body = encode(asked)
        await self._link.request(RequestCode.COMMIT_OFFSETS, body, timeout_ms=self._timeout_ms)

    async def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        """The first offset of every queue that was stored at a time or later, or its end.

        Args:
            topics: existing ones.
            time_ms: milliseconds since 1970 UTC, by the broker's clock when it stored a message.

        Raises:
            TopicNotFound: there is no such topic.
        """
        found: dict[QueueRef, int] = {}
        for names in topics_in_parts(topics):
            asked = OffsetsAt(topics=names, time_ms=time_ms)
            answer = await self._ask(OffsetsAnswer, RequestCode.OFFSETS_AT, asked)
            found |= _by_queue(answer)
        return found

    async def reset_offsets(
        self,
        group: str,
        to: Target,
        value: int = 0,
        *,
        topics: Sequence[str] = (),
        queues: Sequence[int] = (),
        dry_run: bool = False,
    ) -> OffsetMoves:
        """Moves an idle group; durable, all of it or nothing.

        Args:
            group: its name; a group that has never been can be given a place to begin.
            to: "earliest" and "latest" are the ends of what is held; "offset" and "time" are
                absolute; "shift" is relative, and stays within what is held.
            value: the offset, the time in milliseconds since 1970 UTC, or how many messages to
                go forward (negative: back).
            topics: which; none means all that the group committed offsets in.
            queues: their numbers; none means all.
            dry_run: only tell, per queue, from where to where, and what that repeats or skips.

        Raises:
            GroupNotEmpty: the group has members, which would overwrite the offsets.
            GroupNotFound: no topics are named and the group has no offsets.
            TopicNotFound, QueueNotFound: the topic or a queue does not exist.
            OffsetOutOfRange: a queue does not hold the offset.
        """
        asked = ResetOffsets(group, to, value, list(topics), list(queues), dry_run)
        return await self._ask(OffsetMoves, RequestCode.RESET_OFFSETS, asked)

    async def undo_reset(
        self, group: str, *, reset_at_ms: int = 0, dry_run: bool = False
    ) -> OffsetMoves:
        """Puts an idle group back to where it stood before it was last reset or cloned to; durable, all of it or nothing.

        Args:
            group: its name.
            reset_at_ms: of the dry run's answer: take back that move and no later one; 0: the last one, whichever it is.
            dry_run: only tell from where to where; `hindered` says why it cannot be done.

        Raises:
            GroupNotEmpty: the group has members.
            GroupNotFound: no move of it is kept.
            InvalidArgument: it has read on past that place, or was moved otherwise or once more; the sentence says where.
        """
        asked = ResetOffsets(group, "undo", reset_at_ms, dry_run=dry_run)
        return await self._ask(OffsetMoves, RequestCode.RESET_OFFSETS, asked)

    async def clone_offsets(
        self, source: str, target: str, *, topics: Sequence[str] = (), dry_run: bool = False
    ) -> OffsetMoves:
        """Lets an idle group stand where another one stands; durable, all of it or nothing.

        The source may be at work. Queues in which it committed nothing stay as they are.

        Raises:
            GroupNotEmpty: the target has members.
            GroupNotFound: the source has no offsets (in these topics).
            TopicNotFound: there is no such topic.
        """
        asked = CloneOffsets(source, target, list(topics), dry_run)
        return await self._ask(OffsetMoves, RequestCode.CLONE_OFFSETS, asked)

    async def delete_group(self, group: str, *, dry_run: bool = False) -> OffsetMoves:
        """Drops all offsets of an idle group; durable. Its next member begins as in a new group.

        Raises:
            GroupNotEmpty: the group has members.
            GroupNotFound: it has no offsets.
        """
        return await self._ask(
            OffsetMoves, RequestCode.DELETE_GROUP, DeleteGroup(group, dry_run=dry_run)
        )
