import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_mq._runtime.descriptors import Descriptors, granted, in_use


@pytest.fixture
def limit() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_raised_as_far_as_the_process_may(limit: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limit[1]))
    assert granted() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 200
    assert granted() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_open_files_are_counted() -> None:
    before = in_use()
    fd = os.open(os.devnull, os.O_RDONLY)
    assert in_use() == before + 1
    os.close(fd)


def test_half_of_what_is_kept_for_files_is_kept_free(limit: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted(), limit[1]))
    # What is free among lower numbers would be given first.
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] < highest:
        opened.append(os.open(os.devnull, os.O_RDONLY))
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    divided = Descriptors(lowest + 20, 10)
    assert divided.first_kept == lowest + 10
    assert divided.missing() == 0
    for _ in range(15):
        opened.append(os.open(os.devnull, os.O_RDONLY))
    assert divided.missing() == 0
    opened.append(os.open(os.devnull, os.O_RDONLY))
    assert divided.missing() == 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 16, limit[1]))
    assert divided.missing() == 5
    for fd in opened:
        os.close(fd)


def test_few_descriptors_are_shared_by_halves() -> None:
    most = granted()
    assert Descriptors.divided(256) == (most, 256)
    assert Descriptors.divided(most) == (most, most // 2)
