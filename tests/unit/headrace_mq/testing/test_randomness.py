"""What is drawn at random is repeated while a simulation runs, and only then."""

import random
import secrets
import uuid

import pytest

from headrace_mq.client.producer.queue_sender import new_producer_id
from headrace_mq.testing.randomness import InlineExecutor, repeatable


def drawn(seed: int) -> tuple[uuid.UUID, int, float]:
    with repeatable(random.Random(seed)):
        return uuid.uuid4(), new_producer_id(), random.SystemRandom().random()


def test_one_seed_draws_the_same_and_another_one_does_not() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert drawn(1)[0].version == 4


def test_afterwards_everything_is_random_again() -> None:
    real = uuid.uuid4, secrets.randbits, random.SystemRandom
    drawn(1)
    assert (uuid.uuid4, secrets.randbits, random.SystemRandom) == real


def test_a_job_is_done_when_it_was_handed_over() -> None:
    executor = InlineExecutor(1, thread_name_prefix="any")
    assert executor.submit(max, 1, 2).result(0) == 2
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result(0)
    executor.shutdown()
