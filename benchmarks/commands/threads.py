"""Callers that are threads, for frameworks whose calls block."""

import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

__all__ = ["pay_in_by_threads"]

Name = TypeVar("Name")


def pay_in_by_threads(
    pay_in: Callable[[Name, str, int], None],
    accounts: Sequence[Name],
    threads: int,
    seconds: float,
    *,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[float]:
    """Lets the threads pay in for some seconds, once at least; returns what each deposit took."""
    ends = time.perf_counter() + seconds
    took: list[float] = []
    lock = threading.Lock()

    def caller(seed: int) -> None:
        choice = random.Random(seed)
        mine = []
        with context():
            ended = 0.0
            while ended < ends:
                began = time.perf_counter()
                pay_in(choice.choice(accounts), uuid.uuid4().hex, 1)
                ended = time.perf_counter()
                mine.append(ended - began)
        with lock:
            took.extend(mine)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(caller, range(threads)))
    return took
