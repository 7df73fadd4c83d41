import pytest

from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.testing.conformance.deployment import EmbeddedDeployment, fresh, refused


def test_no_two_names_are_alike() -> None:
    assert len({fresh("topic") for _ in range(100)}) == 100


def test_a_missing_refusal_is_noticed_and_other_errors_go_on() -> None:
    with refused(KeyError):
        raise KeyError
    with pytest.raises(AssertionError, match="KeyError"), refused(KeyError):
        pass
    with pytest.raises(ValueError, match="another"), refused(KeyError):
        raise ValueError("another")


async def test_an_embedded_broker_keeps_what_it_acknowledged_and_starts_again(
    deployment: EmbeddedDeployment,
) -> None:
    offsets = []
    for start in (deployment.crash, deployment.restart, deployment.aclose):
        async with Producer(deployment.address) as producer:
            await producer.create_topic("t", queues=1)
            offsets.append((await producer.send(Message(topic="t", body=b"x"))).offset)
        await start()
    assert offsets == [0, 1, 2]
    assert deployment.address == ""
