"""
Which keeper has the record of a URL: PostgreSQL or etcd.

Used by the owner of a member, and by what looks at a group: `headrace cluster` and `headrace doctor`.
"""

from headrace_mq.cluster.record import RECORD_TIMEOUT_MS, RecordKeeper
from headrace_mq.cluster.records.etcd import EtcdRecord
from headrace_mq.cluster.records.etcd_gateway import SCHEMES
from headrace_mq.cluster.records.postgres import PostgresRecord
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import RECORD_SCHEMES, RECORD_SENTENCE

__all__ = ["keeper_of"]


def keeper_of(
    url: str, *, cluster: str, group: str, timeout_ms: int = RECORD_TIMEOUT_MS
) -> RecordKeeper:
    """Returns the keeper of a group's record; it connects at the first call.

    Args:
        url: postgresql://…, etcd://… or etcds://….
        cluster: name of the cluster.
        group: name of the group in it.
        timeout_ms: longest wait for a connection, and for an answer.

    Raises:
        MessageQueueError: the URL is none of these; the sentence says what to write.
    """
    if not url.startswith(RECORD_SCHEMES):
        raise MessageQueueError(RECORD_SENTENCE)
    kind: type[EtcdRecord | PostgresRecord] = (
        EtcdRecord if url.startswith(SCHEMES) else PostgresRecord
    )
    return kind(url, cluster=cluster, group=group, timeout_ms=timeout_ms)
