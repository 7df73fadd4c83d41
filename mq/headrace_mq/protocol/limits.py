"""
The bodies of limits: of clients, of topics, of groups' backlogs; and what an operator sets and sees of groups of either kind.

The rules of `bodies` hold here too: a struct only grows at its end, with defaults.

Used by the broker's quotas, backlogs and handlers, and by `admin`. Pure.
"""

from headrace_mq.protocol.bodies import Body

__all__ = [
    "AS_IT_IS",
    "CLIENT",
    "NO_RATES",
    "THEIR_OWN",
    "TOPIC",
    "BacklogDescription",
    "BacklogsAnswer",
    "GroupRules",
    "HandOverTo",
    "LeaderDescription",
    "NoteChange",
    "Quota",
    "QuotasAnswer",
    "Rates",
    "ReplicaDescription",
    "SetBacklogLimit",
    "SetGroup",
    "SetQuota",
    "SettingDescription",
    "SettingsAnswer",
    "Throttling",
]

# Of a group's retries: as each member has it; as it was.
THEIR_OWN, AS_IT_IS = -1, -2
# What a quota is for: the host that clients connect from, or a topic.
CLIENT, TOPIC = "client", "topic"


class HandOverTo(Body, frozen=True):
    """Asks a group's leader to let a replica lead, empty: any one in sync; the answer has the one that will."""

    to: str = ""


class ReplicaDescription(Body, frozen=True):
    """A replica, as its leader knows it: bytes of the logs that its disk lacks, and how long ago it had all; of these what was acknowledged."""

    name: str
    in_sync: bool
    lag_bytes: int
    lag_ms: int
    loss_bytes: int
    loss_ms: int


class LeaderDescription(Body, frozen=True):
    """What the leader of a group of brokers knows of it.

    `ack` says who must have a message before it is acknowledged: `in_sync`, `to_in_sync` or `leader`. A failover may lose
    `loss_bytes` of acknowledged messages now; some replica in sync has lacked some of them for `loss_ms`. `lost` counts the
    messages that this broker cut from its own logs though they may have been acknowledged.
    """

    ack: str
    loss_bytes: int
    loss_ms: int
    lost: int
    replicas: list[ReplicaDescription]


class Rates(Body, frozen=True):
    """What may go through in a second; 0: as much as will."""

    produce_bytes: int = 0
    produce_messages: int = 0
    fetch_bytes: int = 0
    fetch_messages: int = 0


NO_RATES = Rates()


class SetQuota(Body, frozen=True):
    """Sets the quota of a client or topic in place of the default, or with `remove` the default.

    `kind` is "client" (`name` is the host it connects from) or "topic".
    """

    kind: str
    name: str
    rates: Rates
    remove: bool = False


class Quota(Body, frozen=True):
    """One quota; an empty name is the default of all that have none of their own."""

    kind: str
    name: str
    rates: Rates


class Throttling(Body, frozen=True):
    """A client or topic that a quota delayed lately: how many requests, how long in all, what is still owed.

    `way` is "produce" or "fetch". `owed_ms` is how long nothing will be let through from now on.
    """

    kind: str
    name: str
    way: str
    requests: int
    waited_ms: int
    owed_ms: int


class QuotasAnswer(Body, frozen=True):
    """The answer to SET_QUOTA and DESCRIBE_QUOTAS: all quotas, and those that delayed a client."""

    quotas: list[Quota]
    throttled: list[Throttling]


class SetBacklogLimit(Body, frozen=True):
    """Sets how many messages a group may be behind; with `remove` it may be behind by any number.

    `policy` is "block", "reject" or "drop_oldest".
    """

    group: str
    messages_max: int
    policy: str
    remove: bool = False


class BacklogDescription(Body, frozen=True):
    """A group with a limit: how far behind it is, and what was skipped since the broker's start."""

    group: str
    messages_max: int
    policy: str
    messages: int
    dropped: int
    alarm: bool


class BacklogsAnswer(Body, frozen=True):
    """The answer to SET_BACKLOG_LIMIT and DESCRIBE_BACKLOGS."""

    limits: list[BacklogDescription]


class SetGroup(Body, frozen=True):
    """Says what holds for a group from now on.

    `consume` is "off": it is given no messages; "on": it is; or empty: as it is. `retries`: how often its
    members try a failed record again before it goes to the dead letters; -1: as each has it; -2: as it is.
    """

    group: str
    consume: str = ""
    retries: int = AS_IT_IS


class NoteChange(Body, frozen=True):
    """Says that an operator changes something outside of the broker, and the answer to NOTE_CHANGE.

    It belongs to a group, such as that of a projection, or to the cluster where `group` is empty.
    """

    what: str
    group: str = ""


class SettingDescription(Body, frozen=True):
    """A setting of a broker, its values as text and without secrets.

    `default` is empty where there is none; `source` is "default", a file, a variable or an option, or "program".
    """

    name: str
    value: str
    default: str
    source: str


class SettingsAnswer(Body, frozen=True):
    """The answer to DESCRIBE_SETTINGS."""

    settings: list[SettingDescription]


class GroupRules(Body, frozen=True):
    """What an operator said of a group, and the answer to SET_GROUP.

    `paused_at_ms` is when `consume` was switched off, 0 where it is on.
    """

    group: str
    consume: bool = True
    retries: int = THEIR_OWN
    paused_at_ms: int = 0
