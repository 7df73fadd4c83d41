"""
Expressions of the rules have the results that Prometheus has.

`golden/promtool.json` holds series and what `promtool test rules` 2.42 computed of them. Where promtool is installed, a
test asks it again; HEADRACE_GOLDEN=write writes the file then.
"""

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.alarms.promql.evaluate import Expression, Vector
from headrace.alarms.promql.history import Figure, FigureHistory
from headrace.alarms.rules.table import RULES
from headrace.metrics.table import APP_METRICS
from headrace_mq.broker.metrics.table import BROKER_METRICS

GOLDEN = Path(__file__).parents[4] / "golden" / "promtool.json"
STEP_S = 60
STEPS = 130
ASKED = (7_200, 7_530)
LABELS = {one.name: one.labels for one in (*BROKER_METRICS, *APP_METRICS)}
JOBS = ("headrace-broker", "headrace-nameserver", "headrace-run")
BOUNDS = ("0.1", "0.5", "1", "+Inf")
# Values near the bounds of the rules that name these metrics; of others 0 and 1 are.
NEAR = {
    "disk_days_left": (1, 30), "disk_room_bytes": (1, 90), "disk_size_bytes": (100,), "oldest_seconds": (10, 1_000),
    "backlog_messages": (5, 20_000), "late_seconds": (0, 90), "transactions_oldest_seconds": (0, 900),
    "expires_seconds": (9_000, 9_000_000), "waiting_seconds": (3, 700), "lag_seconds": (1, 90), "loss_seconds": (0.5, 30), "open_fds": (10, 95),
    "max_fds": (100,), "replica_in_sync": (0, 1), "in_sync": (1, 2), "silent_seconds": (0, 40), "parked_oldest_seconds": (5, 90_000),
    "start_time_seconds": (1, 2, 3),
}  # fmt: skip


def series(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Series of each metric that a rule names: two processes, and some of each label."""
    reach: dict[str, float] = {}
    for rule in RULES.values():
        reach |= Expression(rule.expression).reach_s
    for name in sorted(reach):
        for instance in ("a:1", "b:1"):
            for labels in _labels(name, instance):
                values = list(_values(name, chance))
                yield {"name": name, "labels": labels, "values": values}


def _labels(name: str, instance: str) -> Iterator[dict[str, str]]:
    job = "headrace-run" if name.startswith("headrace_app") else "headrace-broker"
    own = {"instance": instance, "job": job}
    if name == "up":
        yield from (own | {"job": each} for each in JOBS)
        return
    bucket = name.removesuffix("_bucket")
    if bucket != name:
        yield from (own | {"le": bound} for bound in BOUNDS)
        return
    names = LABELS.get(name, ())
    for number in (1, 2) if names else (1,):
        held = {label: f"{label}{number}" for label in names}
        if "status" in held:
            held["status"] = ("200", "503")[number - 1]
        if "state" in held:
            held["state"] = ("running", "failed")[number - 1]
        if "outcome" in held:
            held["outcome"] = ("done", "failed")[number - 1]
        yield own | held


def _values(name: str, chance: random.Random) -> Iterator[float | None]:
    near = next((held for end, held in NEAR.items() if name.endswith(end)), (0, 1))
    counts = name.endswith(("_total", "_bucket"))
    calm, value = chance.random() < 0.3, float(chance.choice(near))
    begins, gap = chance.choice((0, 0, 100)), chance.choice((0, 0, 125))
    for step in range(STEPS):
        if counts:
            grown = 0 if calm else chance.choice((0, 0, 1, 200))
            value = 0.0 if chance.random() < 0.01 else value + grown
        elif not calm and chance.random() < 0.1:
            value = float(chance.choice(near))
        yield None if step < begins or (gap and gap <= step < gap + 3) else value


def recorded(found: list[dict[str, Any]]) -> Iterator[tuple[int, FigureHistory]]:
    """The history at the times that are asked about."""
    reach: dict[str, float] = {}
    for rule in RULES.values():
        for name, wanted in Expression(rule.expression).reach_s.items():
            reach[name] = max(wanted, reach.get(name, 0))
    history = FigureHistory(reach, series_max=1_000)
    left = sorted(ASKED)
    for step in range(STEPS + 1):
        while left and left[0] < step * STEP_S:
            yield left.pop(0), history
        processes = {(one["labels"]["job"], one["labels"]["instance"]) for one in found}
        for job, instance in sorted(processes) if step < STEPS else ():
            figures = [
                Figure(one["name"], one["labels"], one["values"][step])
                for one in found
                if (one["labels"]["job"], one["labels"]["instance"]) == (job, instance)
                and one["values"][step] is not None
            ]
            history.add(step * STEP_S, job, instance, figures)


def plain(found: Vector) -> dict[str, float]:
    return {
        ",".join(f"{name}={value}" for name, value in labels): held
        for labels, held in found.items()
        if held == held
    }


def results(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    answers: dict[str, dict[str, dict[str, float]]] = {name: {} for name in RULES}
    for asked, history in recorded(found):
        for name, rule in RULES.items():
            answers[name][str(asked)] = plain(Expression(rule.expression).at(history, asked))
    return answers


def promtool_says(
    found: list[dict[str, Any]], folder: Path
) -> dict[str, dict[str, dict[str, float]]]:
    """What promtool computes: it is asked to expect nothing, and complains of what it got."""
    given = []
    for one in found:
        labels = ",".join(f'{name}="{value}"' for name, value in one["labels"].items())
        values = []
        for before, value in zip([None, *one["values"]], one["values"], strict=False):
            gone = "stale" if before is not None else "_"
            values.append(gone if value is None else f"{value:g}")
        given.append({"series": f"{one['name']}{{{labels}}}", "values": " ".join(values)})
    tests = [
        {"expr": rule.expression, "eval_time": f"{asked}s", "exp_samples": []}
        for rule in RULES.values()
        for asked in ASKED
    ]
    file = folder / "promtool.yml"
    asked_of = [{"interval": f"{STEP_S}s", "input_series": given, "promql_expr_test": tests}]
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": asked_of}, width=100_000))
    command = ["promtool", "test", "rules", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    names = {rule.expression: name for name, rule in RULES.items()}
    answers: dict[str, dict[str, dict[str, float]]] = {
        name: {str(asked): {} for asked in ASKED} for name in RULES
    }
    pattern = r'expr: "(.*)", time: (\S+),\s*exp:\s*nil\s*got:(.*)'
    for line in re.findall(pattern, said.stdout + said.stderr):
        expression = json.loads(f'"{line[0]}"')
        hours, minutes, seconds = re.fullmatch(
            r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", line[1]
        ).groups()  # type: ignore[union-attr]  # promtool writes it so
        asked = int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)
        held = answers[names[expression]][str(asked)]
        for labels, value in re.findall(r"(\{.*?\}) ([-+.\deE]+)", line[2]):
            pairs = re.findall(r'(\w+)="([^"]*)"', labels)
            key = ",".join(f"{name}={own}" for name, own in sorted(pairs) if name != "__name__")
            held[key] = float(value)
    return answers


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def test_an_expression_has_the_results_of_prometheus(golden: dict[str, Any]) -> None:
    ours = results(golden["series"])
    assert ours.keys() == golden["results"].keys(), "a rule is new: ask promtool again"
    for name, expected in golden["results"].items():
        assert golden["expressions"][name] == RULES[name].expression, "ask promtool again"
        for asked, vector in expected.items():
            assert ours[name][asked] == pytest.approx(vector, rel=1e-9), (name, asked)


def test_most_rules_have_results_in_the_series(golden: dict[str, Any]) -> None:
    silent = [name for name, found in golden["results"].items() if not any(found.values())]
    assert len(silent) <= 8, silent


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_still_says_so(tmp_path: Path) -> None:
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        made = list(series(random.Random(9)))
        said = {
            "expressions": {name: rule.expression for name, rule in RULES.items()},
            "series": made,
            "results": promtool_says(made, tmp_path),
        }
        GOLDEN.write_text(json.dumps(said, separators=(",", ":")) + "\n", encoding="utf-8")
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert promtool_says(golden["series"], tmp_path) == golden["results"]


def test_a_bucket_without_a_bound_is_left_out() -> None:
    quantile = Expression("histogram_quantile(0.5, x_bucket)")
    history = FigureHistory(quantile.reach_s, series_max=10)
    odd: tuple[dict[str, str], ...] = ({}, {"le": "wide"}, {"le": "nan"})
    sound = [Figure("x_bucket", {"le": le}, 4.0) for le in ("1", "+Inf")]
    history.add(
        0, "headrace-broker", "a:1", [*(Figure("x_bucket", one, 9.0) for one in odd), *sound]
    )
    ((_, value),) = quantile.at(history, 0).items()
    assert value == 0.5
