import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import InvalidArgument
from headrace_mq.protocol.limits import BacklogDescription, Quota, Rates


async def test_a_quota_is_set_told_and_removed(admin: AdminClient) -> None:
    rates = Rates(produce_bytes=1 << 20, fetch_messages=5)
    assert (await admin.set_quota("client", "10.0.0.7", rates)).quotas == [
        Quota("client", "10.0.0.7", rates)
    ]
    assert (await admin.quotas()).quotas == [Quota("client", "10.0.0.7", rates)]
    assert (await admin.remove_quota("client", "10.0.0.7")).quotas == []


async def test_a_rate_below_zero_is_refused(admin: AdminClient) -> None:
    with pytest.raises(InvalidArgument, match="at least 1 in a second"):
        await admin.set_quota("topic", "t", Rates(produce_bytes=-1))


async def test_a_limit_of_a_backlog_is_set_told_and_removed(admin: AdminClient) -> None:
    limit = BacklogDescription("g", 10, "reject", messages=0, dropped=0, alarm=False)
    assert await admin.limit_backlog("g", 10, "reject") == [limit]
    assert await admin.backlogs() == [limit]
    assert await admin.unlimit_backlog("g") == []


async def test_a_broker_describes_its_settings_with_their_defaults(admin: AdminClient) -> None:
    found = {one.name: one for one in (await admin.settings()).settings}
    assert (found["store.flush"].default, found["store.flush"].source) == ("always", "default")
