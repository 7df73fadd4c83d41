"""Samples become the text that Prometheus reads, whole and in order, however many there are."""

import asyncio
import math
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace.metrics.table import APP_METRICS
from headrace_mq.broker.metrics.table import BROKER_METRICS
from headrace_mq.errors import MessageQueueError
from headrace_mq.metrics.exposition import (
    SAMPLES_PER_TURN_MAX,
    process_samples,
    require_prometheus,
    written,
)
from headrace_mq.metrics.histogram import BOUNDS_S, Histogram
from headrace_mq.metrics.table import PROCESS_METRICS, Metric, Sample

SENT = Metric("sent_total", "counter", "messages", "Messages.", ("topic",))
SIZE = Metric("size_bytes", "gauge", "bytes", "Bytes.")
WAIT = Metric("wait_seconds", "histogram", "seconds", "Waits.", ("kind",))


def read(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def test_samples_of_a_metric_stand_together_under_one_head() -> None:
    samples = [SENT.sample(1, "a"), SIZE.sample(5), None, SENT.sample(2, 'b"\\\n')]
    text = await written(samples)
    assert text.decode().splitlines() == [
        "# HELP sent_total Messages.",
        "# TYPE sent_total counter",
        'sent_total{topic="a"} 1.0',
        'sent_total{topic="b\\"\\\\\\n"} 2.0',
        "# HELP size_bytes Bytes.",
        "# TYPE size_bytes gauge",
        "size_bytes 5.0",
    ]


async def test_a_histogram_becomes_buckets_that_add_up() -> None:
    histogram = Histogram()
    for seconds in (0.00015, 0.0003, 99.0):
        histogram.add(seconds)
    found = read(await written([WAIT.sample(histogram.read(), "x")]))
    buckets = {
        labels: value for (name, labels), value in found.items() if name == "wait_seconds_bucket"
    }
    assert len(buckets) == len(BOUNDS_S) + 1
    assert buckets["x", "0.0001"] == 0
    assert buckets["x", "0.0002"] == 1
    assert buckets["x", "0.0005"] == buckets["x", "30.0"] == 2
    assert buckets["x", "+Inf"] == found["wait_seconds_count", ("x",)] == 3
    assert found["wait_seconds_sum", ("x",)] == pytest.approx(99.00045)


@given(label=st.text())
async def test_any_label_is_read_as_it_was_given(label: str) -> None:
    assert read(await written([SENT.sample(1, label)])) == {("sent_total", (label,)): 1.0}


@pytest.mark.parametrize("value", [0, True, 7, 0.1, -2.5, 1e300, 2**53, math.inf, -math.inf])
async def test_any_number_is_read_as_it_was_given(value: float) -> None:
    assert read(await written([SIZE.sample(value)])) == {("size_bytes", ()): value}


async def test_a_value_that_is_no_number_is_read_as_such() -> None:
    assert math.isnan(read(await written([SIZE.sample(math.nan)]))["size_bytes", ()])


def test_the_head_of_a_metric_needs_no_escapes() -> None:
    for metric in (*BROKER_METRICS, *APP_METRICS):
        assert not set("\\\n") & set(metric.meaning), metric.name


async def test_many_samples_are_written_in_turns_with_others() -> None:
    turns, done = 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    def samples() -> Iterator[Sample | None]:
        for number in range(10 * SAMPLES_PER_TURN_MAX):
            yield SENT.sample(number, str(number))

    working = asyncio.create_task(other())
    text = await written(samples())
    done = True
    await working
    assert turns >= 20
    assert text.count(b"# HELP") == 1
    assert len(read(text)) == 10 * SAMPLES_PER_TURN_MAX


async def test_a_process_says_what_it_is_and_takes() -> None:
    found = read(await written(process_samples()))
    assert {name for name, _ in found} <= {one.name for one in PROCESS_METRICS}
    ((_, labels),) = [key for key in found if key[0] == "headrace_build_info"]
    assert sys.version.split()[0] in labels
    if sys.platform == "linux":
        assert found["process_resident_memory_bytes", ()] > 1 << 20
        assert len(found) == len(PROCESS_METRICS)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_prometheus()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MessageQueueError, match=r"pip install 'headrace\[metrics\]'"):
        require_prometheus()
