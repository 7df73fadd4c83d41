"""A topic of payments, exported into a folder; the broker is made of lists."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.analysis.export import export_events
from headrace_mq.protocol.bodies import QueueRange


@pytest.fixture
def export(
    ledger: Any, topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Path]:
    """Exports what the fixture's topic has beyond earlier parts; returns the folder."""

    def ranges(address: str, topics: list[str], **_known: Any) -> list[QueueRange]:
        held = topic.bodies.items()
        return [QueueRange(topics[0], queue, 0, len(messages)) for queue, messages in held]

    monkeypatch.setattr("headrace.spark.analysis.export.fetch_ranges", ranges)
    monkeypatch.setattr("headrace.spark.analysis.export.fetch_identity", lambda *_: "i-1")
    monkeypatch.setattr("headrace_mq.spark.reader.read_columns", topic.read)

    def run() -> Path:
        export_events(ledger.path, tmp_path / "out", broker="127.0.0.1:1")
        return tmp_path / "out"

    return run
