"""A group of brokers keeps the queue's promises; its leader is what is restarted, and what crashes."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from headrace_mq.testing.conformance.deployment import Deployment, GroupDeployment
from headrace_mq.testing.conformance.queue import QueueConformance
from tests.conftest import connect, free_ports


async def new_database(server: str) -> str:
    name = f"queue_{uuid.uuid4().hex}"
    connection = await connect(server)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return make_url(server).set(database=name).render_as_string()


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[GroupDeployment]:
    """One for all tests: most of its cost is its start."""
    record = asyncio.run(new_database(postgres_url))
    with free_ports() as find:
        made = GroupDeployment(tmp_path_factory.mktemp("group"), [find(), find()], record)
        made.start()
        yield made
        made.close()


class TestGroupOfBrokers(QueueConformance):
    @pytest.fixture
    def deployment(self, group: GroupDeployment) -> Deployment:
        return group
