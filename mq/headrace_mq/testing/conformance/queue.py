"""
The promises that every deployment of the broker must keep, as one test class.

    class TestMyBroker(QueueConformance):
        @pytest.fixture
        async def deployment(self): ...    # a `Deployment`; one may serve all tests

Used by tests of deployments. Knows no deployment.
"""

from headrace_mq.testing.conformance.administration import AdminConformance
from headrace_mq.testing.conformance.consumer import ConsumerConformance
from headrace_mq.testing.conformance.producer import ProducerConformance

__all__ = ["QueueConformance"]


class QueueConformance(ProducerConformance, ConsumerConformance, AdminConformance):
    """The suite; subclass it with the fixture `deployment`."""
