"""All metrics of a process together: of a broker, of a replica, and of one that has stopped."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from headrace_mq.broker.metrics.collector import BrokerMetrics
from headrace_mq.broker.metrics.table import BROKER_METRICS
from headrace_mq.broker.reads.read_counts import ReadCounts
from headrace_mq.broker.replicas.figures import GroupFigures
from headrace_mq.broker.topics.disk import FORECAST_MS_MIN
from headrace_mq.message import QueueRef
from headrace_mq.settings import BrokerSettings, StoreSettings

FIGURES = GroupFigures("c", "g1", "a:1", False, "b:1", 7, ("a:1", "b:1"), 1, False, 0, ())


async def test_a_text_has_metrics_of_the_table_alone(broker, client, batch) -> None:
    await client.produce(batch("t", 0, b"1"))
    metrics = BrokerMetrics(broker._settings, lambda: broker.state, lambda: FIGURES)
    text = (await metrics.text()).decode()
    found = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    known = {name: one for one in BROKER_METRICS for name in one.series_names}
    assert found.keys() <= known.keys()
    assert {name: labels - {"le"} for name, labels in found.items()} == {
        name: set(known[name].labels) for name in found
    }


async def test_a_replica_has_figures_of_its_group_and_its_disk(tmp_path: Path, read) -> None:
    settings = BrokerSettings(store=StoreSettings(directory=tmp_path))
    metrics = BrokerMetrics(settings, lambda: None, lambda: FIGURES)
    found = read(metrics.samples())
    assert found["leads", "c", "g1"] == 0
    assert found["disk_size_bytes",] >= found["disk_free_bytes",] >= found["disk_room_bytes",] >= 0
    assert ("takes_messages",) not in found


async def test_a_missing_folder_leaves_out_the_disk_alone(tmp_path: Path, read) -> None:
    settings = BrokerSettings(store=StoreSettings(directory=tmp_path / "gone"))
    found = read(BrokerMetrics(settings, lambda: None, lambda: None).samples())
    assert ("disk_free_bytes",) not in found
    assert any(name == "headrace_build_info" for name, *_ in found)


async def test_the_days_of_the_disk_are_said_once_they_are_known(
    tmp_path: Path, clock, read
) -> None:
    settings = BrokerSettings(store=StoreSettings(directory=tmp_path))
    metrics = BrokerMetrics(settings, lambda: None, lambda: None, clock)
    assert ("disk_days_left",) not in read(metrics.samples())
    clock.monotonic += FORECAST_MS_MIN
    assert read(metrics.samples())["disk_days_left",] >= 0


async def test_a_replica_has_what_it_gave_readers_until_it_leads(
    broker, clock, tmp_path: Path, read
) -> None:
    settings = BrokerSettings(store=StoreSettings(directory=tmp_path))
    counts, leads = ReadCounts(settings, clock), False
    counts.fetched.add(QueueRef("t", 0), 0, 2, 50)
    metrics = BrokerMetrics(
        settings, lambda: broker.state if leads else None, lambda: FIGURES, reads=lambda: counts
    )
    found = read(metrics.samples())
    assert found["messages_out_total", "t"] == 2
    assert ("fetch_seconds",) in found
    leads = True
    assert ("messages_out_total", "t") not in read(metrics.samples())
