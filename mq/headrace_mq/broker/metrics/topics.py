"""
The traffic of topics, and their dead letters, as samples.

Used by `collector`; reads the meters of a running broker.
"""

from collections.abc import Iterator

from headrace_mq.broker.metrics.table import (
    BYTES_IN,
    BYTES_OUT,
    DEAD_LETTERS,
    MESSAGES_IN,
    MESSAGES_OUT,
    SUMMED,
)
from headrace_mq.broker.quotas.traffic import Meters
from headrace_mq.broker.state import BrokerState
from headrace_mq.message import QueueRef
from headrace_mq.metrics.names import OTHER, Names
from headrace_mq.metrics.table import Metric, Sample

__all__ = ["TopicFigures"]

_DEAD_LETTERS = "%DLQ%"


class TopicFigures:
    """The topics of one broker process.

    Args:
        topics_max: so many have series of their own.
    """

    def __init__(self, topics_max: int) -> None:
        self._names = Names(topics_max)

    def samples(self, state: BrokerState) -> Iterator[Sample | None]:
        """Yields what went in and out by topic, and how many dead letters there are."""
        topics = list(state.topics.identities)
        # Those of users first, should there be too many.
        self._names.add(sorted(topics, key=lambda topic: (topic.startswith("%"), topic)))
        yield None
        yield from self._traffic(state, state.produced, MESSAGES_IN, BYTES_IN)
        yield from self._traffic(state, state.fetched, MESSAGES_OUT, BYTES_OUT)
        yield SUMMED.sample(sum(topic not in self._names for topic in topics), "topics")
        for topic in topics:
            if topic.startswith(_DEAD_LETTERS) and topic in self._names and topic in state.topics:
                letters = sum(
                    state.range(queue)[1] - state.topics.start_of(queue)
                    for queue in state.topics.queues_of(topic)
                )
                yield DEAD_LETTERS.sample(letters, topic)

    def _traffic(
        self, state: BrokerState, meters: Meters[QueueRef], messages: Metric, size: Metric
    ) -> Iterator[Sample]:
        total, by_name = meters.total_since_start(), meters.by_name()
        for topic in self._names:
            if topic in state.topics:
                had = by_name.get(topic)
                yield messages.sample(had.messages if had else 0, topic)
                yield size.sample(had.bytes if had else 0, topic)
        count = {topic: had.messages for topic, had in by_name.items()}
        yield messages.sample(self._names.others(total.messages, count), OTHER)
        count = {topic: had.bytes for topic, had in by_name.items()}
        yield size.sample(self._names.others(total.bytes, count), OTHER)
