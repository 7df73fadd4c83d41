"""The metrics of a broker have names as Prometheus recommends them."""

import re

from headrace_mq.broker.metrics.table import BROKER_METRICS

UNITS = ("_seconds", "_bytes", "_messages", "_total", "_info", "_fds")


def test_every_metric_has_a_name_of_its_own() -> None:
    names = [one.name for one in BROKER_METRICS]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"(headrace|process)_[a-z_]+", name) for name in names)


def test_names_end_as_the_kind_and_the_unit_ask() -> None:
    for one in BROKER_METRICS:
        assert one.name.endswith("_total") == (one.kind == "counter"), one.name
        if one.unit in {"seconds", "bytes"} and one.kind != "counter":
            assert one.name.endswith(f"_{one.unit}"), one.name


def test_every_meaning_is_a_sentence() -> None:
    assert [one.name for one in BROKER_METRICS if not one.meaning.endswith(".")] == []
    assert [one.name for one in BROKER_METRICS if "|" in one.meaning] == []
