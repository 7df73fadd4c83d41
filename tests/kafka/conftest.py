"""Real Kafka brokers, one or three, which live as long as the session and end by their process ids."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.stores.database.schema import upgrade
from samples.kafka import KafkaBrokers, KafkaMissing, jars, java

ROOT = Path(__file__).parents[2]


def brokers(count: int) -> Iterator[KafkaBrokers]:
    try:
        java()
        found = jars(ROOT / "var/kafka")
    except KafkaMissing as missing:
        pytest.skip(str(missing))
    folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
    with KafkaBrokers(folder, brokers=count, jars=found) as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def one_broker() -> Iterator[KafkaBrokers]:
    yield from brokers(1)


@pytest.fixture
def empty_broker() -> Iterator[KafkaBrokers]:
    """A broker that no other test has used."""
    yield from brokers(1)


@pytest.fixture(scope="session")
def three_brokers() -> Iterator[KafkaBrokers]:
    yield from brokers(3)


@pytest.fixture
async def database(tmp_path: Path) -> str:
    """A new SQLite file with the tables of an event store."""
    url = f"sqlite:///{tmp_path}/events.db"
    await upgrade(url)
    return url
