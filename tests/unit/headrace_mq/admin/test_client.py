from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker


async def test_the_broker_describes_itself(broker: Broker, admin: AdminClient) -> None:
    description = await admin.describe()
    assert description.broker == broker.address
    assert description.epoch == 1
    assert description.connections == 1
    assert not description.read_only
