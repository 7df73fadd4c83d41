"""What tests of the metrics share: samples by name and labels."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from headrace_mq.metrics.table import Sample

Read = Callable[[Iterable[Sample | None]], dict[tuple[str, ...], Any]]


@pytest.fixture
def read() -> Read:
    """Returns samples by their names, without the prefix, and labels."""

    def read_all(samples: Iterable[Sample | None]) -> dict[tuple[str, ...], Any]:
        found = {}
        for one in samples:
            if one is not None:
                key = (one.metric.name.removeprefix("headrace_broker_"), *one.labels)
                assert key not in found, "a series twice"
                assert len(one.labels) == len(one.metric.labels)
                found[key] = one.value
        return found

    return read_all
