"""The metrics of an application have names as Prometheus recommends them."""

import re

from headrace.metrics.table import APP_METRICS
from headrace_mq.broker.metrics.table import BROKER_METRICS


def test_every_metric_has_a_name_of_its_own() -> None:
    names = [one.name for one in APP_METRICS]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"(headrace|process)_[a-z_]+", name) for name in names)


def test_a_name_of_both_tables_means_the_same() -> None:
    broker = {one.name: one for one in BROKER_METRICS}
    shared = [one for one in APP_METRICS if one.name in broker]
    assert shared == [broker[one.name] for one in shared]


def test_names_end_as_the_kind_and_the_unit_ask() -> None:
    for one in APP_METRICS:
        assert one.name.endswith("_total") == (one.kind == "counter"), one.name
        if one.unit in {"seconds", "bytes"} and one.kind != "counter":
            assert one.name.endswith(f"_{one.unit}"), one.name


def test_every_meaning_is_a_sentence() -> None:
    assert [one.name for one in APP_METRICS if not one.meaning.endswith(".")] == []
    assert [one.name for one in APP_METRICS if "|" in one.meaning] == []
