"""kill -9 of a copy between the built-in queue and Kafka: the next one goes on, and nothing is there twice."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.kafka import MockKafka
from headrace_mq.client.sync.producer import BlockingProducer
from headrace_mq.message import Message
from headrace_mq.testing.conformance.deployment import ProcessDeployment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

KILLS = 5
MESSAGES = 12_000
QUEUES = 3
TOPIC = "shop.events"

# Dies at a call of some function while it copies, counted from the begin; 0: it does not.
COPY = """
import os, signal, sys
from headrace.transports.kafka import topic_reader as kafka_reader, topic_writer as kafka_writer
from headrace.transports.kafka.topics import TopicFacts
from headrace.transports.topic_copy import compare_topics, copy_topic
from headrace.transports.topic_reader import open_topic_reader
from headrace.transports.topic_writer import open_topic_writer
class Topics:
    def __init__(self, *_of): pass
    def ensure(self, topic, *, queues, forever): pass
    def facts(self, topic): return TopicFacts(int(sys.argv[4]), "made before")
kafka_reader.ClusterTopics = kafka_writer.ClusterTopics = Topics
source, target, calls, topic = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[5]
def count(frame, event, argument):
    global calls
    calls -= 1
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
with open_topic_reader(source) as reader, open_topic_reader(target) as there:
    with open_topic_writer(target) as writer:
        sys.setprofile(count if calls else None)
        copied = copy_topic(reader, there, writer, topic, forever=True)
        sys.setprofile(None)
        found = compare_topics(reader, there, topic)
        print(copied, sum(each.messages for each in found))
"""


def copy(source: str, target: str, calls: int) -> "subprocess.CompletedProcess[str]":
    asked = [source, target, str(calls), str(QUEUES), TOPIC]
    return subprocess.run(
        [sys.executable, "-c", COPY, *asked], capture_output=True, text=True, check=False
    )


def copy_with_kills(source: str, target: str, chance: random.Random) -> int:
    """Returns how many copies were killed before one ended; that one has compared both sides."""
    killed = 0
    while killed < KILLS:
        # From the first call to where some ten thousand messages are written.
        done = copy(source, target, int(10 ** chance.uniform(1, 5)))
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
        killed += 1
    done = copy(source, target, 0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == str(MESSAGES)
    return killed


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    deployment = ProcessDeployment(tmp_path / "mq")
    deployment.start()
    with BlockingProducer(deployment.address) as producer:
        producer.create_topic(TOPIC, QUEUES, "forever")
        for begin in range(0, MESSAGES, 1_000):
            producer.send_many(
                [
                    Message(topic=TOPIC, key=f"k-{number}", body=b"%d" % number * 20)
                    for number in range(begin, begin + 1_000)
                ]
            )
    yield deployment.address
    deployment.close()


async def test_a_killed_copy_goes_on_in_both_directions(address: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    back = ProcessDeployment(tmp_path / "back")
    with MockKafka(brokers=1) as cluster:
        cluster.make_topic(TOPIC, QUEUES)
        killed = await asyncio.to_thread(copy_with_kills, address, cluster.text, chance)
        back.start()
        try:
            killed += await asyncio.to_thread(copy_with_kills, cluster.text, back.address, chance)
        finally:
            back.close()
    assert killed > KILLS
