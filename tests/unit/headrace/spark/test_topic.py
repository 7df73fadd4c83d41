"""Spark reads topics through the port, of any queue."""

from headrace.spark import topic
from headrace.testing.conformance.subscriptions import fresh, outgoing, publish_all
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka.transport import KafkaTransport
from headrace_mq.message import QueueRef
from headrace_mq.spark.offsets import plan_slices


async def test_a_partition_is_planned_measured_and_read_as_a_queue_is() -> None:
    with MockKafka() as cluster:
        transport = KafkaTransport(cluster.address(), topics=cluster.topics)
        await transport.start()
        name = fresh("t")
        await transport.ensure_topic(name, queues=2, forever=True)
        await publish_all(transport, [outgoing(name, number) for number in range(9)])
        held = topic.fetch_ranges(cluster.text, [name])
        [piece] = plan_slices(held)
        assert topic.fetch_settled(cluster.text, name)
        assert topic.message_bytes(cluster.text, [piece]) == {piece.queue: 1.0}
        parts = list(topic.read_columns(cluster.text, piece))
        assert [body for _, columns, *_ in parts for body in columns.bodies] == [
            str(number).encode() for number in range(9)
        ]
        # A mock cluster knows of no moment but the end.
        found = topic.fetch_offsets_at(cluster.text, held, 0)
        assert found == {QueueRef(one.topic, one.queue_id): one.end for one in held}
        [batch] = topic.read_record_batches(cluster.text, piece)
        assert batch["offset"].to_pylist() == list(range(9))
        await transport.aclose()
