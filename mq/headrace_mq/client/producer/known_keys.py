"""
The lanes of the keys that came lately, so that most messages find theirs by one look at a table.

A key stands there only if it is short text in ASCII, so what is found needs no check any more, and
takes as many bytes as it has characters. Where most keys are new, learning them costs more than it
saves; so a table that has filled up without being of use is the last one.

Sits between: `send_buffer`, and the lanes that it chose by the routing rule. Pure.
"""

from headrace_mq.client.producer.queue_sender import QueueSender
from headrace_mq.client.producer.route import KNOWN_KEY_CHARACTERS_MAX, KNOWN_KEYS_MAX

__all__ = ["KnownKeys"]


class KnownKeys:
    """Where keys go.

    Attributes:
        lanes: by topic, then by key.
    """

    __slots__ = ("_learns", "_placed", "lanes")

    def __init__(self) -> None:
        self.lanes: dict[str, dict[str, QueueSender]] = {}
        self._learns, self._placed = True, 0

    def learn(self, topic: str, key: str, lane: QueueSender, placed: int) -> None:
        """Notes the lane of a key that was not found, if that is worth while.

        Args:
            topic: the topic.
            key: not empty.
            lane: where the routing rule sends it.
            placed: how many messages there were so far, about.
        """
        if not (
            self._learns
            and type(key) is str
            and len(key) <= KNOWN_KEY_CHARACTERS_MAX
            and key.isascii()
        ):
            return
        keys = self.lanes.setdefault(topic, {})
        if len(keys) >= KNOWN_KEYS_MAX:
            # Half of the looks at least should have found something.
            self._learns = placed - self._placed >= 2 * KNOWN_KEYS_MAX
            self._placed = placed
            keys.clear()
        keys[key] = lane

    def forget(self, topic: str) -> None:
        """Forgets a topic, because its queues are others now."""
        self.lanes.pop(topic, None)
