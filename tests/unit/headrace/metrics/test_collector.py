"""All metrics of an application together."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from headrace.metrics.collector import AppMetrics
from headrace.metrics.table import APP_METRICS
from headrace.subscriptions.status import ReaderState
from headrace.watch.alarms import Alarm
from headrace_mq.metrics.histogram import Histogram
from samples.bank.accounts import OpenAccount
from samples.bank.read_models import balances


class HandGateway:
    """A gateway whose work a test says."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter({("health", 200): 3})
        self.times: dict[str, Any] = {}

    def measure(self, new: Any) -> None:
        self.times = {"health": new()}


async def test_commands_and_readers_are_counted_and_measured(bank: Any, read: Any) -> None:
    metrics = AppMetrics(bank)
    await bank.bus.execute(OpenAccount(account_id="ann", owner="Ann"))
    result = await bank.bus.execute(OpenAccount(account_id="bob", owner="Bob"))
    await bank.seen(balances, result)
    found = read(metrics.samples())
    assert found["commands_total", "executed"] == 2
    assert found["commands_total", "rejected"] == found["command_conflicts_total",] == 0
    assert found["command_handler_seconds", "OpenAccount"].total == 2
    assert 1 <= found["commit_seconds",].total <= 2
    assert found["cache_misses_total",] == 2
    assert found["reader_messages_total", "projection balances"] >= 1
    assert found["reader_seconds", "projection balances"].total >= 1
    assert found["reader_failures_total", "projection balances"] == 0
    states = {
        state.value: found["reader_state", "projection balances", state.value]
        for state in ReaderState
    }
    assert [state for state, value in states.items() if value] == ["running"]
    assert (found["read_only",], found["parked", "commands"]) == (0, 0)


async def test_a_text_has_metrics_of_the_table_alone(bank: Any) -> None:
    metrics = AppMetrics(bank, HandGateway(), lambda: 1_900_000_000.0)
    await bank.bus.execute(OpenAccount(account_id="ann", owner="Ann"))
    found = {
        sample.name: set(sample.labels) - {"le"}
        for family in text_string_to_metric_families((await metrics.text()).decode())
        for sample in family.samples
    }
    known = {name: set(one.labels) for one in APP_METRICS for name in one.series_names}
    assert found == {name: known[name] for name in found}
    silent = {one.name for one in APP_METRICS if not found.keys() & set(one.series_names)}
    # The bank has no event handlers, and nothing is parked.
    assert silent == {
        "headrace_app_parked_oldest_seconds", "headrace_app_alarm", "headrace_app_event_handler_seconds",
    }  # fmt: skip


async def test_parked_letters_and_alarms_are_shown(bank: Any, read: Any, monkeypatch: Any) -> None:
    since = bank.watch.alarms._clock.now()
    monkeypatch.setattr(
        bank.watch.alarms, "_parked", {"commands": (2, since), "balances": (1, since)}
    )
    alarm = Alarm(projection="balances", kind="letters", value=1, bound=1)
    monkeypatch.setattr(bank.watch.alarms, "_current", {("balances", "letters"): alarm})
    found = read(AppMetrics(bank).samples())
    assert (found["parked", "commands"], found["parked", "projection:balances"]) == (2, 1)
    assert found["parked_oldest_seconds", "projection:balances"] >= 0
    assert found["alarm", "balances", "letters"] == 1


def test_an_application_that_is_only_read_says_so(read: Any) -> None:
    running: Any = SimpleNamespace(watch=None, commands=None, readers={}, read_only="no room")
    found = read(AppMetrics(running, HandGateway()).samples())
    assert found["read_only",] == 1
    assert found["http_requests_total", "health", "200"] == 3
    assert isinstance(found["http_request_seconds", "health"], type(Histogram().read()))
