"""
What `topics.json` holds of topics: their queues, what is frozen, and where deleted queues ended.

Used by `topics`, and by what repairs the file. Plain values.
"""

import msgspec

__all__ = ["KeptGrave", "KeptTopic", "KeptTopics"]


class KeptTopic(msgspec.Struct, frozen=True, omit_defaults=True):
    """One topic as the file holds it; queue numbers in order.

    `settled`: each key has had one queue since the topic was made. An older file says it of no topic.
    """

    queues: int
    retention: str
    unwritable: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()
    settled: bool = False


class KeptGrave(msgspec.Struct, frozen=True):
    """The deleted queues of a topic: number -> the offset behind what they held.

    `retention` names the log that the messages stand in; a queue cannot change it.
    """

    retention: str
    ends: dict[int, int]


class KeptTopics(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of `topics.json`; older files hold no identities, and each topic gets one."""

    topics: dict[str, KeptTopic]
    graves: dict[str, KeptGrave] = {}
    identities: dict[str, str] = {}
