"""Administration of users tells a broker without a login from one with it."""

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import InvalidArgument


async def test_a_broker_without_a_login_has_no_users(admin: AdminClient) -> None:
    with pytest.raises(InvalidArgument, match="no login"):
        await admin.users()
    with pytest.raises(InvalidArgument, match="no login"):
        await admin.explain("ann", "read", "cluster")
