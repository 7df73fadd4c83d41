"""
What a running broker holds and does as a whole, and its group of brokers, as samples.

Used by `collector`; reads the state of the broker, and what it says of its group.
"""

from collections import Counter
from collections.abc import Iterator

from headrace_mq.broker.metrics import table
from headrace_mq.broker.reads.read_counts import ReadCounts
from headrace_mq.broker.replicas.figures import GroupFigures
from headrace_mq.broker.state import BrokerState
from headrace_mq.cluster.record import ACK_IN_SYNC, ACK_LEADER
from headrace_mq.metrics.table import Sample
from headrace_mq.store.message_store import RETENTIONS

__all__ = ["part_samples", "read_samples", "replica_samples"]

_ROLES = ("producer", "consumer", "reader")
# Connections looked at before others have their turn.
CONNECTIONS_PER_TURN_MAX = 500


def part_samples(state: BrokerState) -> Iterator[Sample | None]:
    """Yields everything that is neither of a topic nor of a group of consumers."""
    yield table.APPEND.sample(state.acknowledgements.times.read())
    yield table.FLUSH.sample(state.store.sync_times.read())
    yield table.FETCH.sample(state.fetch_times.read())
    yield table.TOPICS.sample(len(state.topics))
    yield table.QUEUES.sample(state.topics.queues)
    yield table.GROUPS.sample(sum(1 for _ in state.group_names()))
    yield from _store(state)
    yield from _connections(state)
    yield from _journals(state)
    yield table.THROTTLED.sample(state.throttle.requests)
    yield table.HELD.sample(len(state.throttle))
    yield table.PARKED.sample(len(state.long_poll))
    yield table.CLOCK_ALARM.sample(bool(state.clock.alarm))
    yield table.CLOCK_AHEAD.sample(state.clock.ahead_ms / 1_000)
    yield from _archive(state)


def read_samples(reads: ReadCounts) -> Iterator[Sample]:
    """Yields what a replica does for readers as a whole."""
    yield table.FETCH.sample(reads.fetch_times.read())
    yield table.THROTTLED.sample(reads.throttle.requests)
    yield table.HELD.sample(len(reads.throttle))


def _store(state: BrokerState) -> Iterator[Sample]:
    store = state.store
    refused = store.read_only or state.refusal
    yield table.TAKES_MESSAGES.sample(not refused)
    yield table.READ_ONLY.sample(store.read_only is not None)
    yield table.DAMAGED.sample(len(store.damage))
    for log in RETENTIONS:
        segments = store.segments(log)
        yield table.LOG_BYTES.sample(sum(one.bytes for one in segments), log)
        yield table.LOG_SEGMENTS.sample(len(segments), log)
    compaction = store.compaction.figures
    yield table.DIRTY.sample(compaction.dirty_bytes)
    yield table.COMPACTION_FAILED.sample(bool(compaction.trouble))


def _connections(state: BrokerState) -> Iterator[Sample | None]:
    server = state.server
    yield table.CONNECTIONS.sample(len(server.connections))
    yield table.CONNECTIONS_REFUSED.sample(server.refused)
    yield table.LOGINS_REFUSED.sample(state.logins.refused if state.logins is not None else 0)
    yield table.FORBIDDEN.sample(state.guard.refused if state.guard is not None else 0)
    if (expires_s := server.certificate_expires_s) is not None:
        yield table.CERTIFICATE.sample(expires_s)
    roles: Counter[str] = Counter()
    for number, (connection, peer) in enumerate(list(state.peers.items())):
        roles.update(peer.roles(member=bool(state.groups.groups_of(connection))))
        if number % CONNECTIONS_PER_TURN_MAX == 0:
            yield None
    for role in _ROLES:
        yield table.CLIENTS.sample(roles[role], role)


def _journals(state: BrokerState) -> Iterator[Sample]:
    schedule = state.scheduler.describe()
    yield table.SCHEDULED.sample(schedule.pending)
    yield table.SCHEDULED_LATE.sample(schedule.late_ms / 1_000)
    yield table.TRANSACTIONS.sample(state.transactions.undecided)
    begun_at_ms = state.transactions.oldest_at_ms
    age_ms = 0 if begun_at_ms is None else max(0, state.clock.now_ms() - begun_at_ms)
    yield table.TRANSACTIONS_AGE.sample(age_ms / 1_000)


def _archive(state: BrokerState) -> Iterator[Sample]:
    if state.archive is None:
        return
    archive = state.archive.describe()
    yield table.ARCHIVED.sample(archive.messages)
    yield table.ARCHIVE_WAITING.sample(archive.waiting_bytes)
    yield table.ARCHIVE_AGE.sample(archive.waiting_ms / 1_000)
    yield table.ARCHIVE_FAILED.sample(bool(archive.failure))


def replica_samples(figures: GroupFigures) -> Iterator[Sample]:
    """Yields who leads, who is in sync, what was repaired, how far the replicas lag behind, and what a failover may lose."""
    where = (figures.cluster, figures.group)
    yield table.LEADS.sample(figures.leads, *where)
    yield table.LEADER_INFO.sample(1, *where, figures.me, figures.leader)
    yield table.EPOCH.sample(figures.epoch, *where)
    yield table.IN_SYNC.sample(len(figures.in_sync), *where)
    # A leader that acknowledges alone does so however few are in sync; on the way back to all, too few acknowledge nothing.
    least = 1 if figures.ack == ACK_LEADER else figures.min_in_sync
    yield table.MIN_IN_SYNC.sample(least, *where)
    yield table.WENT_BACK.sample(figures.went_back, *where)
    yield table.UNCLEAN.sample(figures.unclean, *where)
    yield table.RECORD_SILENT.sample(figures.record_silent_ms / 1_000, *where)
    yield table.REPAIRED.sample(figures.repaired, *where)
    yield table.UNREPAIRED.sample(figures.unrepaired, *where)
    yield table.LOST.sample(figures.lost, *where)
    yield table.ACKNOWLEDGES_ALONE.sample(figures.ack != ACK_IN_SYNC, *where)
    if figures.leads:
        yield table.FAILOVER_LOSS_BYTES.sample(figures.loss_bytes, *where)
        yield table.FAILOVER_LOSS.sample(figures.loss_ms / 1_000, *where)
    for one in figures.replicas:
        yield table.REPLICA_IN_SYNC.sample(one.in_sync, *where, one.name)
        yield table.REPLICA_BYTES.sample(one.lag_bytes, *where, one.name)
        yield table.REPLICA_LAG.sample(one.lag_ms / 1_000, *where, one.name)
        yield table.REPLICA_LOSS_BYTES.sample(one.loss_bytes, *where, one.name)
        yield table.REPLICA_LOSS.sample(one.loss_ms / 1_000, *where, one.name)
