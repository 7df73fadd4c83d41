"""The broker keeps the queue's promises in this process and in one of its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace_mq.testing.conformance.deployment import (
    Deployment,
    EmbeddedDeployment,
    ProcessDeployment,
)
from headrace_mq.testing.conformance.queue import QueueConformance


class TestEmbeddedBroker(QueueConformance):
    @pytest.fixture
    async def deployment(self) -> AsyncIterator[Deployment]:
        deployment = EmbeddedDeployment()
        await deployment.start()
        yield deployment
        await deployment.aclose()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    """One for all tests: most of its cost is its start."""
    deployment = ProcessDeployment(tmp_path_factory.mktemp("broker"))
    deployment.start()
    yield deployment
    deployment.close()


class TestBrokerProcess(QueueConformance):
    @pytest.fixture
    def deployment(self, process: ProcessDeployment) -> Deployment:
        return process


def test_a_broker_that_cannot_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RuntimeError, match="ended with status 1"):
        ProcessDeployment(tmp_path / "file").start()
