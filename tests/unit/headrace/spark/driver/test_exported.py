"""Exported files are read as columns where all of them fit, else as messages; and it is said why."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.errors import ProjectionError
from headrace.folds import last, sum_
from headrace.projections.definition.projection import Projection
from headrace.spark.driver.exported import Exported, find_exported
from headrace.spark.driver.report import queue_name


class Row(BaseModel):
    key: str
    total: int
    said: str | None = None


@pytest.fixture
def export(ledger: Any, topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Exports what the topic has beyond earlier parts; returns the folder."""
    from headrace.spark.analysis.export import export_events
    from headrace_mq.protocol.bodies import QueueRange

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


@pytest.fixture
def folder(ledger: Any, topic: Any, export: Any) -> Path:
    """Two parts: three bookings, one of them twice."""
    one, two = (ledger.stream("a", v, ledger.Booked(partner="p", amount=v)) for v in (1, 2))
    topic.publish(one)
    export()
    topic.publish(one, two, ledger.stream("b", 1, ledger.Booked(partner="q", amount=5)))
    made: Path = export()
    return made


def projection(ledger: Any, **rule: Any) -> Projection[Any]:
    made = Projection("sums", row=Row, key="key")
    made.on(ledger.Booked, **{"total": sum_("amount"), **rule})
    return made


def find(ledger: Any, folder: Path, made: Any = None, **choices: Any) -> Exported:
    asked = {"vouched": False, "not_whole": "", **choices}
    return find_exported(folder, ledger.app, made or projection(ledger), **asked)


def test_what_is_declared_is_read_as_columns_of_all_parts(ledger: Any, folder: Path) -> None:
    found = find(ledger, folder)
    assert found.read_as == "columns"
    assert found.native is not None
    files = found.native.files
    assert files is not None
    parts = [Path(path).parts[-4] for path in files.events[0]]
    assert sorted(set(parts)) == ["export-000001", "export-000002"]
    assert files.parts == 2
    assert len(files.versions) >= 2
    assert found.counts == {"events": 3, "duplicates": 1, "gaps": 0, "filled": 0}
    assert found.native.reading.context == ("aggregate_id", "sequence", "version")


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"not_whole": "only some rows are folded"}, "messages: only some rows are folded"),
        ({"vouched": True}, "messages: .* was exported without an event store that vouches"),
    ],
)
def test_what_is_not_to_be_read_whole_or_not_believed_is_read_as_messages(
    ledger: Any, folder: Path, choices: Any, why: str
) -> None:
    found = find(ledger, folder, **choices)
    assert found.native is None
    assert found.read_as.startswith("messages: ")
    assert re.match(why, found.read_as)


def test_functions_and_files_of_an_older_version_are_read_as_messages(
    ledger: Any, folder: Path
) -> None:
    import pyarrow.parquet as pq

    found = find(ledger, folder, ledger.accounts)
    assert found.read_as == (
        "messages: projection accounts has folds that are Python functions, so it is folded event by event"
    )
    for path in folder.glob("export-*/events/Booked/*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["_order"]), path)
    for path in folder.glob("export-*/export.json"):
        told = json.loads(path.read_bytes())
        told.pop("files")
        path.write_text(json.dumps(told))
    shared = projection(ledger, key="partner", said=last("partner"))
    assert "has no column _order" in find(ledger, folder, shared).read_as
    # Where the order in the topic does not matter, they are columns all the same.
    assert find(ledger, folder).read_as == "columns"


def test_messages_are_checked_where_they_are_read(ledger: Any, folder: Path) -> None:
    found = find(ledger, folder)
    path = next(folder.glob("export-000001/messages/*.parquet"))
    path.write_bytes(b"other")
    assert find(ledger, folder).read_as == "columns"
    for reading in (
        lambda: found.as_messages("there are few"),
        lambda: find(ledger, folder, not_whole="only some rows are folded"),
    ):
        with pytest.raises(ProjectionError, match="is not the file that was exported"):
            reading()


def test_few_messages_and_sums_that_wrap_around_are_no_query(ledger: Any, folder: Path) -> None:
    found = find(ledger, folder)

    def session(ansi: str) -> Any:
        return SimpleNamespace(conf=SimpleNamespace(get=lambda _: ansi))

    assert found.unsuited(session("true"), 4, 4) == ""
    assert found.unsuited(session("true"), 3, 4).startswith("fewer than 4 are folded")
    assert found.unsuited(session("false"), 4, 4).startswith("spark.sql.ansi.enabled is off")
    read = found.as_messages("there are few")
    assert read.as_messages("another reason") is read
    assert read.unsuited(session("false"), 0, 4) == ""


def test_the_tail_of_a_plan_is_what_no_file_has(
    ledger: Any, topic: Any, folder: Path, make_plan: Any
) -> None:
    found = find(ledger, folder)
    assert found.tail(make_plan("sums", topic.slices(), archive=found.messages)).slices == ()
    topic.publish(ledger.stream("a", 3, ledger.Booked(partner="p", amount=3)))
    plan = found.tail(make_plan("sums", topic.slices(), archive=found.messages))
    assert [piece.records for piece in plan.slices] == [1]
    assert plan.archive == ()
    assert queue_name(plan.slices[0].queue).startswith("ledger.events/")
