"""
What a broker of a group says of it to an operator. PURE: values only.

Used by `replicated_broker` and `followers`, which know them, and by the metrics.
"""

from typing import NamedTuple

from headrace_mq.cluster.record import ACK_IN_SYNC

__all__ = ["GroupFigures", "ReplicaFigures"]


class ReplicaFigures(NamedTuple):
    """A replica, as its leader knows it.

    Attributes:
        name: of the broker.
        in_sync: whether messages are acknowledged only when it has them.
        lag_bytes: of the logs, that its disk does not have yet.
        lag_ms: how long ago it had everything.
        loss_bytes: of the logs, that were acknowledged and its disk does not have: what is lost if it leads now.
        loss_ms: for how long it has lacked some.
    """

    name: str
    in_sync: bool
    lag_bytes: int
    lag_ms: int
    loss_bytes: int = 0
    loss_ms: int = 0


class GroupFigures(NamedTuple):
    """A group of brokers, as one of them knows it.

    Attributes:
        cluster: the name of its cluster.
        group: its name.
        me: the name of the broker that says this.
        leads: whether this broker serves the group's clients.
        leader: the name of the broker that leads; empty where none is known.
        epoch: counts the elections.
        in_sync: the names of the brokers in sync.
        min_in_sync: fewer of them acknowledge nothing.
        went_back: whether the record is older than one that was seen, or of another group, so that nothing is decided.
        record_silent_ms: how long ago the record answered; while it does not, no leader is elected.
        replicas: those of this broker, if it leads.
        unclean: the epoch in which a broker was promoted with loss, until an operator settles that; 0: none.
        position: how many bytes its logs have.
        repaired: damaged places of its logs that got sound bytes from another broker, since the process started.
        unrepaired: damaged places for which no other broker had sound bytes.
        lost: messages that were cut from its logs though they may have been acknowledged; files of its folder have them.
        loss_bytes: of messages that were acknowledged, that a failover may lose now; only if it leads.
        loss_ms: for how long some broker in sync has lacked some of them.
        ack: who must have a message before it is acknowledged, by the record.
    """

    cluster: str
    group: str
    me: str
    leads: bool
    leader: str
    epoch: int
    in_sync: tuple[str, ...]
    min_in_sync: int
    went_back: bool
    record_silent_ms: int
    replicas: tuple[ReplicaFigures, ...]
    unclean: int = 0
    position: int = 0
    repaired: int = 0
    unrepaired: int = 0
    lost: int = 0
    loss_bytes: int = 0
    loss_ms: int = 0
    ack: str = ACK_IN_SYNC
