"""
Repeats what the queue draws at random, and runs its threads' jobs at once, while a simulation runs.

Identities, producer ids and the jitter of reconnections come from the system's randomness, which no
seed repeats; the writer of the indexes and the reader of old batches have threads of their own. For
the time of a simulation all of that comes from here.

Sits between: the simulation and the sources of randomness. Must never be used in an application.
"""

import random
import secrets
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from headrace_mq.store.log import batch_reader, index_writer

__all__ = ["InlineExecutor", "repeatable"]

T = TypeVar("T")
UUID_VERSION = 4
UUID_BITS = 128


class InlineExecutor(Executor):
    """Runs every job when it is handed over."""

    def __init__(self, *_: object, **__: object) -> None:
        """Takes what a ThreadPoolExecutor takes."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Runs the job and returns its outcome."""
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever asks for the outcome gets it
            done.set_exception(error)
        return done


@contextmanager
def repeatable(chosen: random.Random) -> Iterator[None]:
    """Lets everything that is drawn in the block come from one seeded generator."""

    def identity() -> uuid.UUID:
        return uuid.UUID(int=chosen.getrandbits(UUID_BITS), version=UUID_VERSION)

    with (
        patch.object(uuid, "uuid4", identity),
        patch.object(secrets, "randbits", chosen.getrandbits),
        patch.object(random, "SystemRandom", lambda: chosen),
        patch.object(index_writer, "ThreadPoolExecutor", InlineExecutor),
        patch.object(batch_reader, "ThreadPoolExecutor", InlineExecutor),
    ):
        yield
