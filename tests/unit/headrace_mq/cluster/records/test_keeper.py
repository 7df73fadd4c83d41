"""The URL of a record decides who keeps it."""

import pytest

from headrace_mq.cluster.records.etcd import EtcdRecord
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.cluster.records.postgres import PostgresRecord
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import GroupSettings


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://me@host/database", PostgresRecord),
        ("postgresql+asyncpg://me@host/database", PostgresRecord),
        ("etcd://h:2379,i:2379/", EtcdRecord),
        ("etcds://h:2379?ca=ca.pem", EtcdRecord),
    ],
)
async def test_a_url_of_a_record_has_its_keeper(url: str, kind: type) -> None:
    assert GroupSettings(record=url).record == url
    assert isinstance(keeper_of(url, cluster="c", group="g"), kind)


def test_a_url_of_no_keeper_says_what_to_write() -> None:
    with pytest.raises(MessageQueueError, match="in PostgreSQL or etcd: postgresql://"):
        keeper_of("redis://h:1", cluster="c", group="g")
    with pytest.raises(ValueError, match="or etcd://HOST:2379"):
        GroupSettings(record="redis://h:1")
