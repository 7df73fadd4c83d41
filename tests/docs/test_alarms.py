"""The alert rules and the dashboard name metrics and labels that exist, and each rule has a page that says what to do."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.metrics.table import APP_METRICS
from headrace_mq.broker.metrics.collector import BrokerMetrics
from headrace_mq.broker.metrics.table import BROKER_METRICS
from headrace_mq.broker.replicas.figures import GroupFigures
from headrace_mq.settings import BrokerSettings, StoreSettings

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "headrace.json"
PAGE = ROOT / "docs" / "alarms.md"
# What Prometheus adds to each series, and what it says of each target.
ADDED = frozenset({"instance", "job"})
LABELS = {
    name: {*one.labels, *({"le"} if one.kind == "histogram" else ())} | ADDED
    for one in (*BROKER_METRICS, *APP_METRICS)
    for name in one.series_names
} | {"up": ADDED}
# For a closer look: others on the dashboard tell of the same in sum, or they only describe a process.
DETAILS = {
    "headrace_app_aggregates_cached", "headrace_app_event_handler_seconds", "headrace_broker_archived_messages_total",
    "headrace_broker_clock_ahead_seconds", "headrace_broker_compaction_dirty_bytes", "headrace_broker_disk_free_bytes",
    "headrace_broker_fetches_waiting", "headrace_broker_group_backlog_seconds", "headrace_broker_group_keeps_offsets",
    "headrace_broker_groups", "headrace_broker_leader_info", "headrace_broker_log_segments", "headrace_broker_queues",
    "headrace_broker_requests_held", "headrace_broker_topics", "headrace_build_info", "process_virtual_memory_bytes",
}  # fmt: skip
NAME = re.compile(r"\b(headrace_\w+|process_\w+|up)\b(\{[^}]*\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
AGGREGATED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
TEMPLATE = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
DURATION = re.compile(r"\d+[smhd]")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def targets() -> Iterator[dict[str, Any]]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        yield from panel.get("targets", ())


def expressions() -> dict[str, str]:
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for number, target in enumerate(targets()):
        found[f"dashboard {number}"] = target["expr"]
    return found


def complaints(expression: str) -> list[str]:
    """What is wrong with the names, labels and parentheses of an expression."""
    found = []
    named = NAME.findall(expression)
    for name, matchers in named:
        if name not in LABELS:
            found.append(f"there is no metric {name}")
            continue
        wrong = set(MATCHER.findall(matchers)) - LABELS[name]
        found += [f"{name} has no label {label}" for label in sorted(wrong)]
    known = set().union(*(LABELS.get(name, set()) for name, _ in named))
    for labels in AGGREGATED.findall(expression):
        wrong = {label.strip() for label in labels.split(",")} - known
        found += [f"no metric of it has a label {label}" for label in sorted(wrong)]
    counts = Counter(expression)
    found += [f"{a} without {b}" for a, b in ("()", "[]", "{}") if counts[a] != counts[b]]
    return found if named else [*found, "it names no metric"]


@pytest.mark.parametrize(("where", "expression"), expressions().items(), ids=expressions().keys())
def test_an_expression_names_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    assert complaints(expression) == []


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("headrace_broker_gone > 0", "there is no metric headrace_broker_gone"),
        ('headrace_broker_log_bytes{topic="a"}', "headrace_broker_log_bytes has no label topic"),
        ("sum by (topic) (headrace_broker_log_bytes)", "no metric of it has a label topic"),
        ("sum(headrace_broker_log_bytes", "( without )"),
        ("headrace_broker_flush_seconds > 1", "there is no metric headrace_broker_flush_seconds"),
        ("time() > 1", "it names no metric"),
    ],
)
def test_a_wrong_expression_is_noticed(expression: str, complaint: str) -> None:
    assert complaint in complaints(expression)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_about_any_process_asks_for_those_of_headrace(rule: dict[str, Any]) -> None:
    shared = [
        matchers
        for name, matchers in NAME.findall(rule["expr"])
        if not name.startswith("headrace_")
    ]
    assert all("job" in MATCHER.findall(matchers) for matchers in shared)


@pytest.mark.parametrize(("where", "expression"), expressions().items(), ids=expressions().keys())
def test_what_every_broker_of_a_group_believes_is_asked_of_its_leader(
    where: str, expression: str
) -> None:
    """A replica's own figure may be of an earlier leader's time."""
    if re.search(r"\bheadrace_broker_(min_)?in_sync\b", expression):
        assert expression.endswith("and on (instance) headrace_broker_leads == 1")
        assert "max" not in expression


@pytest.mark.parametrize(("where", "expression"), expressions().items(), ids=expressions().keys())
def test_the_first_letter_of_a_topic_counts(where: str, expression: str) -> None:
    """The topic is made for its first letter, so its series begins with 1, of which `increase` sees nothing."""
    for found in re.findall(
        r"increase\((headrace_broker_dead_letters_total)[^)]*\[(\w+)\]\)", expression
    ):
        metric, time = found
        assert f"unless {metric} offset {time}" in " ".join(expression.split())


def test_rules_are_many_and_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) >= 20
    assert len(names) == len(set(names))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_says_how_bad_it_is_and_what_happened(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert DURATION.fullmatch(rule.get("for", "1m"))
    labels = set().union(*(LABELS[name] for name, _ in NAME.findall(rule["expr"])))
    told = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    assert set(told) <= labels
    aggregated = re.match(r"(?:max|sum|min) by \(([^)]*)\)", rule["expr"])
    if aggregated:
        assert set(told) <= {label.strip() for label in aggregated[1].split(",")}


def test_every_rule_has_a_section_that_says_what_to_do() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == [rule["alert"] for rule in rules()]
    assert [name for name, text in sections.items() if "**Means:**" not in text] == []
    assert [name for name, text in sections.items() if "**Do:**" not in text] == []
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/alarms.md#{rule['alert'].lower()}"


def test_every_metric_is_on_the_dashboard_or_in_a_rule() -> None:
    named = {name for expression in expressions().values() for name, _ in NAME.findall(expression)}
    known = (*BROKER_METRICS, *APP_METRICS)
    assert {one.name for one in known if not named & {*one.series_names}} == DETAILS


def test_panels_have_room_and_numbers_of_their_own() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = Counter(
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert max(places.values()) == 1
    assert max(x for x, _ in places) < 24
    assert [
        panel["title"] for panel in panels if panel["type"] != "row" and not panel["targets"]
    ] == []


def test_a_dashboard_asks_the_data_source_that_its_user_chose() -> None:
    text = DASHBOARD.read_text(encoding="utf-8")
    dashboard = json.loads(text)
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert set(re.findall(r'"uid": "\$\{(\w+)\}"', text)) == {"datasource"}
    assert set(re.findall(r"=~\\\"\$(\w+)\\\"", text)) <= variables.keys()
    for one in variables.values():
        if one["type"] == "query":
            (metric,) = re.findall(r"label_values\((\w+), instance\)", one["definition"])
            assert metric in LABELS


def test_a_dashboard_offers_replicas_as_brokers_too(tmp_path: Path) -> None:
    replica = GroupFigures("c", "g1", "a:1", False, "b:1", 7, ("a:1", "b:1"), 1, False, 0, ())
    settings = BrokerSettings(store=StoreSettings(directory=tmp_path))
    samples = BrokerMetrics(settings, lambda: None, lambda: replica).samples()
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    (broker,) = (one for one in dashboard["templating"]["list"] if one["name"] == "broker")
    (metric,) = re.findall(r"label_values\((\w+), instance\)", broker["definition"])
    assert metric in {one.metric.name for one in samples if one is not None}
    assert metric in broker["query"]["query"]
    others = {name for name in LABELS if not name.startswith("headrace_broker_")}
    assert metric not in others, "each program would be offered as a broker"


@pytest.mark.parametrize("target", list(targets()), ids=lambda target: target["expr"][:60])
def test_a_legend_names_labels_that_its_series_have(target: dict[str, Any]) -> None:
    expression = target["expr"]
    labels = set().union(*(LABELS[name] for name, _ in NAME.findall(expression)))
    kept = [
        set(map(str.strip, some.split(","))) for some in re.findall(r"by \(([^)]*)\)", expression)
    ]
    left = set.intersection(*kept) if kept else labels
    assert set(TEMPLATE.findall(target["legendFormat"])) <= left - {"le"}
