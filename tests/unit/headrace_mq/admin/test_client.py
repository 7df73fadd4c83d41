from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.transactions.checks import Decision, Undecided
from headrace_mq.client.transactions.transactional_producer import TransactionalProducer
from headrace_mq.message import Message
from headrace_mq.protocol.scheduled import ScheduleDescription


async def test_the_broker_describes_itself(broker: Broker, admin: AdminClient) -> None:
    description = await admin.describe()
    assert description.broker == broker.address
    assert description.epoch == 1
    assert description.connections == 1
    assert not description.read_only


async def test_the_schedule_tells_how_many_wait_and_the_next_time(
    broker: Broker, admin: AdminClient
) -> None:
    assert await admin.scheduled() == ScheduleDescription(0, -1, 0)
    async with Producer(broker.address) as producer:
        for level in ("1h", "2h"):
            scheduled = await producer.schedule(Message(topic="t", body=b"x"), level=level)
        told = await admin.scheduled()
        assert (told.pending, told.late_ms) == (2, 0)
        assert scheduled.due_at_ms > told.next_due_at_ms
        assert await producer.cancel(scheduled.id)
        assert not await producer.cancel(scheduled.id)
    assert (await admin.scheduled()).pending == 1


async def test_undecided_transactions_are_counted_and_named(
    broker: Broker, admin: AdminClient
) -> None:
    async def unknown(_: Undecided) -> Decision:
        return Decision.UNKNOWN

    async with TransactionalProducer(broker.address, group="g", checker=unknown) as producer:
        transaction = await producer.begin(Message(topic="t", body=b"x"), transaction_id="order-1")
        told = await admin.transactions()
        assert (told.undecided, told.oldest[0].transaction_id) == (1, "order-1")
        await transaction.rollback()
    assert (await admin.transactions()).undecided == 0
