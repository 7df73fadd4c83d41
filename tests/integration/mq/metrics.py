"""What a broker process tells Prometheus, as tests look at it."""

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from headrace_mq.broker.metrics.table import BROKER_METRICS

__all__ = ["Found", "scrape"]

Found = dict[tuple[str, ...], float]


async def scrape(port: int) -> Found:
    """The series of a process by their names, without the prefix, and the values of their labels."""

    def get() -> str:
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=120) as answer:
            return str(answer.read().decode())

    order = {name: one.labels for one in BROKER_METRICS for name in one.series_names}
    return {
        (
            sample.name.removeprefix("headrace_broker_"),
            *(sample.labels[label] for label in order[sample.name]),
            *([sample.labels["le"]] if "le" in sample.labels else []),
        ): sample.value
        for family in text_string_to_metric_families(await asyncio.to_thread(get))
        for sample in family.samples
    }
