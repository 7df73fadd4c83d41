"""
What a rule is about: an action, and the resources it is done to. PURE.

    cluster          the broker itself
    topic:orders     one topic
    topic:orders.*   all topics whose names begin so
    topic:*          all topics
    group:…          the same of groups

Used by rules and decisions, and by the command line for their text.
"""

from enum import StrEnum
from typing import NamedTuple, Self

from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.errors import InvalidArgument
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import TRANSACTION_TOPIC

__all__ = [
    "ALL_NAMES",
    "JOURNAL_TOPICS",
    "MARKS",
    "Action",
    "Ask",
    "Pattern",
    "ResourceKind",
    "is_audit_change",
    "is_open",
    "owned",
]

# As long as the name of a group may be.
NAME_BYTES_MAX = 255
# In a question: not one resource, but all of the kind.
ALL_NAMES = ""
# Which letters of a group were sent again or taken off the list: places alone.
MARKS = "%MARK%"
# A group that was in use before marks: its offset says how far letters were sent again.
_RESENT = "%RESENT%"
# Topics that the clients of a group make for it, by the beginning of their names; its name follows.
GROUP_TOPICS = ("%RETRY%", "%DLQ%", MARKS, _RESENT)
# The broker's own: what is sent there is for other topics, and those are asked about.
JOURNAL_TOPICS = frozenset({SCHEDULE_TOPIC, TRANSACTION_TOPIC})


class Action(StrEnum):
    """What is done to a resource."""

    PUBLISH = "publish"
    CONSUME = "consume"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"
    ADMINISTER = "administer"


class ResourceKind(StrEnum):
    """What sort of thing a resource is."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"


class Ask(NamedTuple):
    """One question: may this be done to that?

    Attributes:
        action: what is to be done.
        kind: of the resource.
        name: of the resource; `ALL_NAMES` for all of its kind, and for the cluster.
    """

    action: Action
    kind: ResourceKind
    name: str = ALL_NAMES

    @property
    def resource(self) -> str:
        """The resource in words."""
        return _text(self.kind, self.name or "*")

    def __str__(self) -> str:
        return f"{self.action} {self.resource}"


class Pattern(NamedTuple):
    """The resources that a rule is about.

    Attributes:
        kind: what they are.
        name: the name of one, or the beginning of their names.
        is_prefix: which of the two it is. An empty prefix stands for all.
    """

    kind: ResourceKind
    name: str = ""
    is_prefix: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a pattern.

        Raises:
            InvalidArgument: it is none; the sentence shows some.
        """
        kind, _, name = text.partition(":")
        if text == ResourceKind.CLUSTER:
            return cls(ResourceKind.CLUSTER)
        if kind not in {ResourceKind.TOPIC, ResourceKind.GROUP} or not name:
            raise InvalidArgument(
                f"a resource is cluster, topic:NAME, topic:PREFIX*, topic:* or the same with group, not {text!r}"
            )
        if len(name.encode(errors="surrogatepass")) > NAME_BYTES_MAX:
            raise InvalidArgument(f"a name has at most {NAME_BYTES_MAX} bytes; use a shorter one")
        is_prefix = name.endswith("*")
        return cls(ResourceKind(kind), name[:-1] if is_prefix else name, is_prefix)

    def covers(self, kind: ResourceKind, name: str) -> bool:
        """Returns whether a resource is one of them; all of a kind are covered by all of it alone."""
        if kind != self.kind:
            return False
        return name.startswith(self.name) if self.is_prefix else name == self.name

    def __str__(self) -> str:
        return _text(self.kind, f"{self.name}*" if self.is_prefix else self.name)


def owned(ask: Ask) -> Ask:
    """Returns a question about a topic that belongs to a group as one about the group, and to the broker likewise.

    The clients of a group make, fill and read its topics, so those that may consume for it may do that. To read the
    audit needs what it needs to see who is connected.
    """
    if ask.kind is ResourceKind.GROUP and ask.name.startswith(_RESENT) and ask.name != _RESENT:
        return ask._replace(name=ask.name.removeprefix(_RESENT))
    if ask.kind is not ResourceKind.TOPIC or not ask.name.startswith("%"):
        return ask
    if ask.name == AUDIT_TOPIC and ask.action is Action.CONSUME:
        return Ask(Action.READ, ResourceKind.CLUSTER)
    for prefix in GROUP_TOPICS:
        group = ask.name.removeprefix(prefix)
        if group and group != ask.name:
            usual = ask.action in {Action.PUBLISH, Action.CREATE}
            return Ask(Action.CONSUME if usual else ask.action, ResourceKind.GROUP, group)
    return ask


def is_audit_change(ask: Ask) -> bool:
    """Returns whether a question is about the audit, and not about reading it: no one may do that."""
    is_audit = ask.kind is ResourceKind.TOPIC and ask.name == AUDIT_TOPIC
    return is_audit and ask.action not in {Action.READ, Action.CONSUME}


def is_open(ask: Ask) -> bool:
    """Returns whether each user may do something, also against a rule, because it shows no message and changes none.

    It is to see where the queues of the audit end, and to look for the journals or make them, as clients do before they send.
    """
    if ask.kind is not ResourceKind.TOPIC:
        return False
    if ask.name == AUDIT_TOPIC:
        return ask.action is Action.READ
    return ask.name in JOURNAL_TOPICS and ask.action in {Action.READ, Action.CREATE}


def _text(kind: ResourceKind, name: str) -> str:
    return str(kind) if kind is ResourceKind.CLUSTER else f"{kind}:{name}"
