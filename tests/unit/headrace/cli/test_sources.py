"""The strongest source of a setting is named."""

from pathlib import Path

from headrace.cli.sources import layers_of, source_in
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
