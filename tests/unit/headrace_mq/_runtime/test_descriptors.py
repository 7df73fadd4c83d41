import os
import resource
from collections.abc import Iterator

import pytest

from headrace_mq._runtime.descriptors import granted, in_use


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
