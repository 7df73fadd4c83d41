"""
Tells what became of one message.

Sits between: `client`, whose part it is, and the trace topic, found by key.
"""

from headrace_mq.admin.lookup import MessageSearch
from headrace_mq.client.trace.trace_events import TRACE_TOPIC, TraceStep, decode_step
from headrace_mq.errors import TopicNotFound
from headrace_mq.message_id import MessageId

__all__ = ["MessageTrace"]

# Steps of one message: a group that retries it for ever does not fill the screen.
STEPS_SHOWN_MAX = 1_000


class MessageTrace(MessageSearch):
    """The call that follows a message."""

    async def steps(self, message_id: str) -> list[TraceStep]:
        """What consumers that trace did with a message, in order of time; the first 1,000 steps.

        When it was produced and stored, and by whom, tells the message itself.

        Args:
            message_id: `topic:queue:offset`, where it stood first: a retried message keeps its id.

        Raises:
            ValueError: it is no message id.
            RequestTimeout: the search took longer than a call may.
        """
        MessageId.parse(message_id)
        try:
            records = await self.find(TRACE_TOPIC, message_id, limit=STEPS_SHOWN_MAX)
        except TopicNotFound:
            return []
        found = (decode_step(record.body) for record in records)
        # Steps told by several consumers meet in the topic in the order of their arrival.
        return sorted((step for step in found if step is not None), key=lambda step: step.at_ms)
