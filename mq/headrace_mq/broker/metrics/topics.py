"""
The traffic of topics, and their dead letters, as samples.

Used by `collector`; reads the meters of a running broker.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

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
from headrace_mq.client.retry_headers import DEAD_LETTER_PREFIX
from headrace_mq.message import QueueRef
from headrace_mq.metrics.names import OTHER, Names
from headrace_mq.metrics.table import Metric, Sample

__all__ = ["TopicFigures"]


class TopicFigures:
    """The topics of one broker process.

    Args:
        topics_max: so many have series of their own.
    """

    def __init__(self, topics_max: int) -> None:
        self._names = Names(topics_max)
        # Dead letters of topics that share a series, and of those among them that were deleted.
        self._summed: Mapping[str, int] = {}
        self._gone = 0
        # What topics with series of their own had, by metric and topic, and what those had that were deleted.
        self._own: dict[Metric, Mapping[str, int]] = {}
        self._deleted: Counter[Metric] = Counter()

    def samples(self, state: BrokerState) -> Iterator[Sample | None]:
        """Yields what went in and out by topic, and how many dead letters there are."""
        yield None
        topics, known = list(state.topics.identities), state.topics.__contains__
        # Those of users first, should there be too many. Their traffic is read before others have their turn: a topic that is
        # made meanwhile would be one of the others first.
        self._names.keep(sorted(topics, key=lambda topic: (topic.startswith("%"), topic)))
        yield from self._traffic(known, state.produced, MESSAGES_IN, BYTES_IN)
        yield from self._traffic(known, state.fetched, MESSAGES_OUT, BYTES_OUT)
        yield SUMMED.sample(sum(topic not in self._names for topic in topics), "topics")
        yield from self._dead_letters(state, topics)

    def reads(self, fetched: Meters[QueueRef]) -> Iterator[Sample]:
        """Yields what a replica gave readers, by topic; its leader has the rest."""
        topics = sorted(fetched.by_name(), key=lambda topic: (topic.startswith("%"), topic))
        self._names.keep(topics)
        yield from self._traffic(topics.__contains__, fetched, MESSAGES_OUT, BYTES_OUT)
        yield SUMMED.sample(sum(topic not in self._names for topic in topics), "topics")

    def _dead_letters(self, state: BrokerState, topics: list[str]) -> Iterator[Sample | None]:
        summed = {}
        for topic in topics:
            if not topic.startswith(DEAD_LETTER_PREFIX) or topic not in state.topics:
                continue
            letters = sum(
                state.range(queue)[1] - state.topics.start_of(queue)
                for queue in state.topics.queues_of(topic)
            )
            if topic in self._names:
                yield DEAD_LETTERS.sample(letters, topic)
            else:
                summed[topic] = letters
                yield None
        # A counter never goes down, also where a topic was deleted, or deleted and made again.
        self._gone += sum(had for topic, had in self._summed.items() if summed.get(topic, 0) < had)
        self._summed = summed
        yield DEAD_LETTERS.sample(self._gone + sum(summed.values()), OTHER)

    def _traffic(
        self,
        is_known: Callable[[str], bool],
        meters: Meters[QueueRef],
        messages: Metric,
        size: Metric,
    ) -> Iterator[Sample]:
        total, by_name = meters.total_since_start(), meters.by_name()
        for topic in self._names:
            if is_known(topic):
                had = by_name.get(topic)
                yield messages.sample(had.messages if had else 0, topic)
                yield size.sample(had.bytes if had else 0, topic)
        count = {topic: had.messages for topic, had in by_name.items()}
        yield messages.sample(self._others(messages, total.messages, count), OTHER)
        count = {topic: had.bytes for topic, had in by_name.items()}
        yield size.sample(self._others(size, total.bytes, count), OTHER)

    def _others(self, metric: Metric, total: int, count: Mapping[str, int]) -> int:
        """Returns what the topics without series of their own had; it never goes down.

        What a deleted topic had in its own series is in the total for ever, and not in `count`: it is not of the others.
        """
        before = self._own.get(metric, {})
        self._own[metric] = now = {topic: count.get(topic, 0) for topic in self._names}
        self._deleted[metric] += sum(
            had for topic, had in before.items() if now.get(topic, 0) < had
        )
        return self._names.others(total, count) - self._deleted[metric]
