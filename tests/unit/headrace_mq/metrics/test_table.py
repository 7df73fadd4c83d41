"""Metrics have names that Prometheus takes, and a row each in a table for readers."""

import pytest

from headrace_mq.metrics.table import PROCESS_METRICS, Metric, markdown


def test_a_sample_has_the_labels_in_the_metrics_order() -> None:
    metric = Metric("headrace_x_total", "counter", "messages", "Some.", ("topic", "queue"))
    sample = metric.sample(3, "orders", "1")
    assert (sample.metric, sample.labels, sample.value) == (metric, ("orders", "1"), 3)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("gauge", ("headrace_x",)),
        ("histogram", ("headrace_x_bucket", "headrace_x_sum", "headrace_x_count")),
    ],
)
def test_a_metric_knows_the_names_of_its_series(kind: str, names: tuple[str, ...]) -> None:
    assert Metric("headrace_x", kind, "1", "Some.").series_names == names  # type: ignore[arg-type]  # both are kinds


def test_a_table_has_a_row_for_each_metric() -> None:
    lines = markdown(PROCESS_METRICS).splitlines()
    assert len(lines) == 2 + len(PROCESS_METRICS)
    assert lines[2].startswith(
        "| `headrace_build_info` | gauge | 1 | `version` `python` `system` | The "
    )
    assert {line.count("|") for line in lines} == {6}
