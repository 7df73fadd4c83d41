from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from headrace_mq._runtime.checks import BUSY_POLL_US_MAX
from headrace_mq.client_settings import FETCH_BYTES_MAX
from headrace_mq.settings import (
    ArchiveSettings,
    BrokerSettings,
    BudgetSettings,
    ConsumerSettings,
    ProducerSettings,
    RetrySettings,
    StoreSettings,
    SuperviseSettings,
    TransactionSettings,
)

STORE = StoreSettings(directory=Path("data"))


def test_the_defaults_are_valid() -> None:
    assert BrokerSettings(store=STORE).port == 9876
    assert STORE.flush == "always"
    assert ProducerSettings().codec == "none"
    assert ConsumerSettings().start == "earliest"


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        (StoreSettings, "segment_bytes", (64 << 10) - 1),
        (StoreSettings, "flush_interval_ms", 0),
        (StoreSettings, "transient_age_ms", 0),
        (StoreSettings, "transient_bytes_max", -1),
        (StoreSettings, "unconsumed_ms_max", -1),
        (StoreSettings, "retention_interval_ms", 0),
        (StoreSettings, "timeline_keep_ms", 0),
        (StoreSettings, "clock_jump_ms_min", 0),
        (StoreSettings, "segments_deleted_max", 0),
        (StoreSettings, "disk_look_ms", 0),
        (StoreSettings, "disk_refuse_percent", 101),
        (StoreSettings, "disk_delete_percent", 0),
        (BrokerSettings, "port", -1),
        (BrokerSettings, "port", 65_536),
        (BrokerSettings, "default_queues", 0),
        (BrokerSettings, "default_queues", 1_025),
        (BrokerSettings, "connections_max", 0),
        (BrokerSettings, "frame_bytes_max", (64 << 10) - 1),
        (BrokerSettings, "member_expiry_ms", 999),
        (BrokerSettings, "lock_expiry_ms", 99),
        (BrokerSettings, "vanished_ms_max", 3_999),
        (BrokerSettings, "busy_poll_us", -1),
        (BrokerSettings, "busy_poll_us", BUSY_POLL_US_MAX + 1),
        (ProducerSettings, "send_timeout_ms", 0),
        (ProducerSettings, "batch_messages_max", 0),
        (ProducerSettings, "batch_bytes_max", 0),
        (ProducerSettings, "buffer_bytes_max", 0),
        (ProducerSettings, "reconnect_ms_min", 0),
        (ProducerSettings, "reconnect_ms_max", 49),
        (ProducerSettings, "vanished_ms_max", 3_999),
        (ProducerSettings, "busy_poll_us", -1),
        (ConsumerSettings, "heartbeat_ms", 0),
        (ConsumerSettings, "topics_refresh_ms", 0),
        (ConsumerSettings, "fetch_wait_ms", 0),
        (ConsumerSettings, "fetch_bytes_max", 0),
        (ConsumerSettings, "fetch_bytes_max", FETCH_BYTES_MAX + 1),
        (ConsumerSettings, "in_flight_max", 0),
        (ConsumerSettings, "in_flight_bytes_max", 0),
        (ConsumerSettings, "in_flight_span_max", 0),
        (ConsumerSettings, "commit_interval_ms", 0),
        (ConsumerSettings, "handlers_max", 0),
        (ConsumerSettings, "handler_timeout_ms", 0),
        (ConsumerSettings, "start", -1),
        (ConsumerSettings, "retry_ms_min", 0),
        (ConsumerSettings, "retry_ms_max", 99),
        (ConsumerSettings, "request_timeout_ms", 0),
        (ConsumerSettings, "reconnect_ms_min", 2_001),
        (ConsumerSettings, "vanished_ms_max", 3_999),
        (ConsumerSettings, "busy_poll_us", BUSY_POLL_US_MAX + 1),
        (SuperviseSettings, "ask_every_ms", 0),
        (SuperviseSettings, "ask_every_ms", 30_001),
        (SuperviseSettings, "stuck_after_ms", 0),
        (SuperviseSettings, "start_ms_max", 0),
        (SuperviseSettings, "stop_ms_max", 0),
        (SuperviseSettings, "abort_ms_max", 0),
        (SuperviseSettings, "pause_ms_min", 0),
        (SuperviseSettings, "pause_ms_max", 499),
        (SuperviseSettings, "well_after_ms", 0),
        (SuperviseSettings, "reports_max", 0),
        (SuperviseSettings, "stderr_bytes_max", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_name(settings: Any, field: str, value: int) -> None:
    needed: dict[str, Any] = {}
    if settings is StoreSettings:
        needed = {"directory": Path("data")}
    elif settings is BrokerSettings:
        needed = {"store": STORE}
    stem = field.removesuffix("_min").removesuffix("_max")
    with pytest.raises(ValueError, match=stem):
        settings(**needed, **{field: value})


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        STORE.segment_bytes = 1  # type: ignore[misc]  # that is the point


def every_word() -> list[tuple[Any, str, list[str]]]:
    """Returns every setting that is one of some words, with the words."""
    kinds = (
        ArchiveSettings, BrokerSettings, ConsumerSettings, ProducerSettings, RetrySettings,
        StoreSettings, SuperviseSettings, TransactionSettings,
    )  # fmt: skip
    found = []
    for kind in kinds:
        for name, wanted in get_type_hints(kind).items():
            parts = [wanted, *get_args(wanted)]
            words = [
                word for part in parts if get_origin(part) is Literal for word in get_args(part)
            ]
            if words:
                found.append((kind, name, words))
    return found


def needed_by(kind: Any) -> dict[str, Any]:
    needed: dict[Any, dict[str, Any]] = {
        StoreSettings: {"directory": Path("data")},
        BrokerSettings: {"store": STORE},
        ArchiveSettings: {"url": "postgresql://h/db"},
    }
    return needed.get(kind, {})


@pytest.mark.parametrize(("kind", "name", "words"), every_word())
def test_a_word_that_is_none_of_the_choices_is_refused_with_all_of_them(
    kind: Any, name: str, words: list[str]
) -> None:
    for word in words:
        kind(**needed_by(kind), **{name: word})
    for wrong in ("sync", words[0].upper(), words[0] + " "):
        with pytest.raises(ValueError, match=f"{name} must be {' or '.join(map(repr, words))}"):
            kind(**needed_by(kind), **{name: wrong})


def test_the_words_of_every_kind_of_settings_are_found() -> None:
    found = {(kind.__name__, name) for kind, name, _ in every_word()}
    assert {
        ("StoreSettings", "flush"), ("ConsumerSettings", "handling"), ("ConsumerSettings", "start"),
        ("ConsumerSettings", "allocation"), ("RetrySettings", "dead_letters"),
    } <= found  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(ConsumerSettings, "heartbeat_ms", "1s"), (StoreSettings, "segment_bytes", 65_536.5)],
)
def test_a_value_of_another_type_is_refused(kind: Any, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is .* wrong type"):
        kind(**needed_by(kind), **{name: value})


def test_a_broker_has_all_budgets() -> None:
    assert issubclass(BrokerSettings, BudgetSettings)


@pytest.mark.parametrize("name", BudgetSettings.__struct_fields__)
def test_a_budget_of_nothing_is_refused_where_nothing_could_be_done(name: str) -> None:
    least = 0 if name.startswith("address_") else 1
    assert getattr(BudgetSettings(**{name: least}), name) == least
    with pytest.raises(ValueError, match=f"{name} must be at least {least}"):
        BudgetSettings(**{name: least - 1})
