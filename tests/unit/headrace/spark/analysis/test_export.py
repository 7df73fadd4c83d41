"""An export holds each message once and each event typed, and goes on where the last one ended."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace import DomainEvent
from headrace.errors import ProjectionError
from headrace.spark.analysis.export import export_events
from headrace.spark.archive import ExportedPart, exported_parts, files_of
from headrace.spark.executor.doubts import Doubts
from headrace.spark.executor.fold import read_messages
from headrace_mq.errors import ConnectionLost
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange

Export = Callable[[], ExportedPart]


@pytest.fixture
def export(ledger: Any, topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    """Exports the fixture's topic into a folder."""

    def ranges(address: str, topics: list[str], **_known: Any) -> list[QueueRange]:
        return [
            QueueRange(topics[0], queue, 0, len(messages))
            for queue, messages in topic.bodies.items()
        ]

    monkeypatch.setattr("headrace.spark.analysis.export.fetch_ranges", ranges)
    monkeypatch.setattr("headrace.spark.analysis.export.fetch_identity", lambda *_: "i-1")
    monkeypatch.setattr("headrace_mq.spark.reader.read_columns", topic.read)
    return lambda: export_events(ledger.path, tmp_path / "out", broker="127.0.0.1:1")


def rows(folder: Path, event_type: type[DomainEvent]) -> list[dict[str, Any]]:
    """All exported events of a type, part by part."""
    files = sorted(folder.glob(f"export-*/events/{event_type.message_name}/*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_messages_are_kept_as_they_are_and_events_become_typed_rows(
    ledger: Any, topic: Any, export: Export, tmp_path: Path
) -> None:
    first = ledger.stream("a", 1, ledger.Booked(partner="p", amount=5), ledger.Noted(text="x"))
    topic.publish(first, ledger.rejection("a"), ledger.stream("a", 2, ledger.Ended()), queue=1)
    part = export()
    assert (part.number, part.messages, part.end) == (1, 3, {0: 0, 1: 3})
    assert part.events == {"Booked": 1, "Noted": 1, "Ended": 1}
    assert part.bytes > 0
    [booked] = rows(tmp_path / "out", ledger.Booked)
    context = booked.pop("context")
    assert booked.pop("_order").keys() == {"moment", "turn"}
    assert booked == {"partner": "p", "amount": 5}
    assert (context["aggregate_id"], context["version"], context["sequence"]) == ("a", 1, 1)
    assert context["recorded_at"] == first.recorded_at
    stored = pq.read_table(tmp_path / "out/export-000001/messages/queue-001.parquet").to_pylist()
    assert [row["body"] for row in stored] == [body for _, _, body in topic.bodies[1]]
    assert [dict(row["headers"])["kind"] for row in stored] == ["events", "rejection", "events"]
    assert exported_parts(tmp_path / "out") == [part]


def test_the_next_export_goes_on_and_one_without_news_writes_nothing(
    ledger: Any, topic: Any, export: Export, tmp_path: Path
) -> None:
    streams = [
        ledger.stream("a", version, ledger.Booked(partner="p", amount=version))
        for version in range(1, 6)
    ]
    topic.publish(*streams[:3], queue=0)
    assert export().number == 1
    assert export().number == 0
    # What stands there again, in another part, is no second event.
    topic.publish(streams[1], *streams[3:], queue=0)
    part = export()
    assert (part.number, part.start[0], part.end[0], part.messages) == (2, 3, 6, 3)
    assert (part.events, part.duplicates) == ({"Booked": 2}, 1)
    amounts = [row["amount"] for row in rows(tmp_path / "out", ledger.Booked)]
    assert amounts == [1, 2, 3, 4, 5]


def test_a_fold_gets_from_files_what_the_broker_would_give_it(
    ledger: Any, topic: Any, export: Export, make_plan: Any, tmp_path: Path
) -> None:
    streams = [
        ledger.stream("a", version, ledger.Booked(partner="p", amount=version))
        for version in range(1, 12)
    ]
    topic.publish(*streams[:4], ledger.rejection("a"), *streams[4:7], queue=0)
    export()
    topic.publish(*streams[7:9], queue=0)
    export()
    topic.publish(*streams[9:], queue=0)
    plan = make_plan("accounts", topic.slices())
    [piece] = plan.slices
    doubts = Doubts(plan, ledger.app.serializer)
    from_broker = [each for some in read_messages(plan, piece, doubts=doubts) for each in some]
    for body in topic.bodies[0][:10]:
        topic.bodies[0][topic.bodies[0].index(body)] = (body[0], body[1], b"not read any more")
    archived = make_plan(
        "accounts", topic.slices(), archive=files_of(tmp_path / "out", "ledger.events")
    )
    assert [
        each for some in read_messages(archived, piece, doubts=doubts) for each in some
    ] == from_broker
    assert len(from_broker) == 11


def test_events_that_nobody_has_a_class_for_are_told_of_and_stay_in_the_messages(
    ledger: Any, topic: Any, export: Export, tmp_path: Path
) -> None:
    topic.publish(ledger.stream("a", 1, ledger.Ended(), ledger.Noted(text="x")), queue=0)
    ((key, headers, body),) = topic.bodies[0]
    stored = json.loads(body)
    stored["events"][0]["name"] = "Forgotten"
    topic.bodies[0][0] = (key, headers, json.dumps(stored).encode())
    part = export()
    assert (part.unknown, part.events) == ({"Forgotten version 1": 1}, {"Noted": 1})
    kept = pq.read_table(tmp_path / "out/export-000001/messages/queue-000.parquet")
    assert b"Forgotten" in kept["body"][0].as_py()


def test_missing_versions_are_an_error_and_nothing_is_written(
    ledger: Any, topic: Any, export: Export, tmp_path: Path
) -> None:
    topic.publish(ledger.stream("a", 3, ledger.Ended()), queue=0)
    with pytest.raises(ProjectionError, match="a versions 1 to 2; nothing was exported"):
        export()
    assert exported_parts(tmp_path / "out") == []
    topic.publish(*(ledger.stream("a", each, ledger.Noted(text="x")) for each in (1, 2)), queue=0)
    part = export()
    assert (part.number, part.gaps, part.events) == (1, 1, {"Ended": 1, "Noted": 2})


def test_a_stream_that_does_not_decode_leaves_its_aggregate_out_of_this_part_and_later_ones(
    ledger: Any, topic: Any, export: Export, tmp_path: Path
) -> None:
    def book(key: str, *versions: int) -> None:
        events = [(each, ledger.Booked(partner=key, amount=each)) for each in versions]
        topic.publish(*(ledger.stream(key, each, event) for each, event in events), queue=0)

    book("a", 1, 2, 3)
    book("b", 1, 2)
    key, headers, body = topic.bodies[0][1]
    topic.bodies[0][1] = (key, headers, body.replace(b'"amount":2', b'"lost":2'))
    part = export()
    assert (part.messages, part.events) == (5, {"Booked": 3})
    assert list(part.left_out) == ["a"]
    assert "/0 offset 1 (aggregate a) does not decode" in part.left_out["a"]
    assert exported_parts(tmp_path / "out") == [part]
    book("a", 4)
    book("b", 3)
    part = export()
    assert (part.number, part.messages, part.events, part.left_out) == (2, 2, {"Booked": 1}, {})
    found = [(row["partner"], row["amount"]) for row in rows(tmp_path / "out", ledger.Booked)]
    assert sorted(found) == [("a", 1), ("b", 1), ("b", 2), ("b", 3)]


def test_an_export_of_messages_that_brokers_lost_is_not_gone_on_with(
    ledger: Any, topic: Any, export: Export, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    lossy, changed = 0, 2

    def ranges(address: str, topics: list[str], known: Mapping[QueueRef, int]) -> list[QueueRange]:
        asked.append(known)
        return [
            QueueRange(
                topics[0], queue, 0, len(messages), epoch=lossy + 3,
                changed_from=changed if 0 < known.get(QueueRef(topics[0], queue), 0) < lossy else -1,
            )
            for queue, messages in topic.bodies.items()
        ]  # fmt: skip

    monkeypatch.setattr("headrace.spark.analysis.export.fetch_ranges", ranges)
    topic.publish(*(ledger.stream("a", each, ledger.Ended()) for each in (1, 2, 3)), queue=0)
    part = export()
    assert part.epochs[0] == 3
    # One led that lacks the third message; others have come since.
    lossy = 5
    topic.publish(*(ledger.stream("b", each, ledger.Ended()) for each in (1, 2)), queue=0)
    with pytest.raises(ProjectionError, match="brokers lost its messages from 2 on"):
        export()
    assert asked[0] == {}
    assert asked[1][QueueRef("ledger.events", 0)] == 3
    # It lacks none that was exported.
    changed = 3
    part = export()
    assert (part.number, part.start[0], part.end[0], part.epochs[0]) == (2, 3, 5, 8)
    assert exported_parts(tmp_path / "out")[-1] == part


def test_an_absent_broker_and_another_application_are_errors(
    ledger: Any, topic: Any, export: Export, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic.publish(ledger.stream("a", 1, ledger.Ended()))
    export()

    def gone(address: str, topics: list[str], **_known: Any) -> list[QueueRange]:
        raise ConnectionLost("no broker answers")

    monkeypatch.setattr("headrace.spark.analysis.export.fetch_ranges", gone)
    with pytest.raises(ProjectionError, match="the events of unit_ledger:app: no broker answers"):
        export()
    assert len(exported_parts(tmp_path / "out")) == 1
    with pytest.raises(ProjectionError, match=r"holds events of ledger\.events, not of bank"):
        export_events("samples.bank:app", tmp_path / "out", broker="127.0.0.1:1")
