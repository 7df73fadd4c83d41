"""The strongest source of a setting is named."""

from pathlib import Path

from headrace.cli.settings import gather
from headrace.cli.sources import layers_of, source_in, told_settings
from headrace.gateway.settings import GatewaySettings
from headrace.settings import Settings
from headrace_mq.settings import StoreSettings

KINDS = {"store": StoreSettings}


def test_each_source_is_stronger_than_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[store]\nflush = 'interval'\nsegment_bytes = 1\ndisk_look_ms = 1\n")
    environment = {"HEADRACE_STORE__SEGMENT_BYTES": "2MiB", "HEADRACE_STORE__DISK_LOOK_MS": "2s"}
    layers = layers_of(KINDS, file=file, environment=environment, pairs=["store.disk_look_ms=3s"])
    assert source_in(layers, "store", "flush") == (str(file), "interval")
    assert source_in(layers, "store", "segment_bytes") == (
        "HEADRACE_STORE__SEGMENT_BYTES",
        2 << 20,
    )
    assert source_in(layers, "store", "disk_look_ms") == ("--set", 3_000)
    assert source_in(layers, "store", "transient_age_ms") == ("default", None)


def test_without_a_file_nothing_comes_from_one() -> None:
    layers = layers_of(KINDS, file=None, environment={}, pairs=None)
    assert source_in(layers, "store", "flush") == ("default", None)


def test_a_process_tells_its_settings_with_their_sources_and_without_secrets(
    tmp_path: Path,
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("[run]\nretry_ms_min = 7\n[http]\nport = 1\npage_rows = 9\n")
    environment = {
        "HEADRACE_RUN__BROKER": "kafka://h:9092?sasl.username=u&sasl.password=hunter2",
        "HEADRACE_RUN__READ_MODELS": "postgresql://bank:hunter2@db/bank",
    }
    kinds = {"run": Settings, "http": GatewaySettings}
    layers = layers_of(kinds, file=file, environment=environment, pairs=["trace_share=0.5"])
    given = gather(kinds, file=file, environment=environment, pairs=["trace_share=0.5"])
    parts = {
        "run": Settings(**given["run"] | {"event_store": "sqlite:///var/e.db", "name": "till-1"}),
        "http": GatewaySettings(**given["http"]),
    }
    told = told_settings(parts, layers, {"run.name": "--name"})
    found = {one["name"]: (one["value"], one["default"], one["source"]) for one in told}
    assert found["retry_ms_min"] == ("7", "50", str(file))
    assert found["trace_share"] == ("0.5", "0.0", "--set")
    assert found["name"] == ("till-1", "", "--name")
    assert found["http.page_rows"][::2] == ("9", str(file))
    assert found["lag_ms_max"] == ("60000", "60000", "default")
    # What the command takes where nothing is given is its default.
    assert found["event_store"] == ("sqlite:///var/e.db", "sqlite:///var/e.db", "default")
    assert found["broker"] == ("kafka://h:9092", "none", "HEADRACE_RUN__BROKER")
    assert found["read_models"][0] == "postgresql://db/bank"
    assert "hunter2" not in str(told)
    assert len(told) == len(Settings.model_fields) + len(GatewaySettings.model_fields)
