"""
Administration of offsets: where groups stand, and moving them.

Sits between: `client`, whose part it is, and the broker's requests about offsets.
"""

from collections.abc import Mapping, Sequence

from headrace_mq.admin.asking import Asking
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    GetOffsets,
    OffsetsAnswer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode

__all__ = ["OffsetAdministration"]


class OffsetAdministration(Asking):
    """The calls about the offsets of groups."""

    async def offsets(self, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
        """The next offset a group will read of every queue of the topics; -1: never committed."""
        asked = GetOffsets(group=group, topics=list(topics))
        answer = await self._ask(OffsetsAnswer, RequestCode.GET_OFFSETS, asked)
        return {QueueRef(item.topic, item.queue_id): item.offset for item in answer.offsets}

    async def set_offsets(self, group: str, offsets: Mapping[QueueRef, int]) -> None:
        """Moves a group to other offsets, forth or back; its consumers must be stopped.

        Raises:
            InvalidArgument: the group has members at work, which would overwrite the offsets.
            OffsetOutOfRange: a queue does not reach that far; nothing was changed.
        """
        asked = CommitOffsets(
            group=group,
            member="",
            generation=0,
            offsets=[CommittedOffset(*queue, offset) for queue, offset in offsets.items()],
        )
        body = encode(asked)
        await self._link.request(RequestCode.COMMIT_OFFSETS, body, timeout_ms=self._timeout_ms)
