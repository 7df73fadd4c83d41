"""Files are read as they were exported and by the classes that made them, or not at all."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from headrace.app import App
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent
from headrace.errors import ProjectionError
from headrace.folds import count, last, sum_
from headrace.projections.definition.projection import Projection
from headrace.spark.archive import parts_of
from headrace.spark.columns.files import find_files, find_versions, read_events
from headrace.spark.columns.touches import plan_columns


class Row(BaseModel):
    key: str
    total: int
    said: str | None = None


@pytest.fixture
def folder(ledger: Any, topic: Any, export: Any) -> Path:
    """Two parts: three bookings of a in two queues' files, a note of b."""
    for version in (1, 2, 3):
        event = ledger.Booked(partner=f"p{version}", amount=version)
        topic.publish(ledger.stream("a", version, event), queue=0)
        if version == 2:
            export()
    topic.publish(ledger.stream("b", 1, ledger.Noted(text="x")), queue=1)
    found: Path = export()
    return found


def files(folder: Path, app: App, *rules: Any, vouched: bool = False, **columns: Any) -> Any:
    projection = Projection("sums", row=Row, key="key")
    projection.on(*rules, **(columns or {"total": count()}))
    registry = app.serializer.events
    plan = plan_columns(projection, registry.types.values())
    parts = parts_of(folder, "ledger.events")
    found = find_files(folder, parts, plan, registry, vouched=vouched)
    return [events for file in found for events in read_events(file, plan)]


def rewrite(folder: Path, change: Any, number: int = 1) -> None:
    path = folder / f"export-{number:06}" / "export.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    change(told)
    path.write_text(json.dumps(told), encoding="utf-8")


def test_the_files_of_all_parts_and_queues_are_found(ledger: Any, folder: Path) -> None:
    booked = files(folder, ledger.app, ledger.Booked, total=sum_("amount"), said=last("partner"))
    assert [each.field("amount").to_pylist() for each in booked] == [[1, 2], [3]]
    both = files(folder, ledger.app, ledger.Booked, ledger.Noted)
    assert sorted(map(len, both)) == [1, 1, 2]
    assert find_versions(folder, parts_of(folder, "ledger.events")) == {"a": 3, "b": 1}


def test_large_files_are_read_some_events_at_a_time(
    ledger: Any, topic: Any, export: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.columns.files._EVENTS_MAX", 6)
    for version in range(1, 24):
        event = ledger.Booked(partner="p", amount=version)
        topic.publish(ledger.stream("a", version, event), queue=0)
    folder = export()
    path = folder / "export-000001/events/Booked/queue-000-v1.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=4)
    rewrite(folder, lambda told: told.pop("files"))
    read = files(folder, ledger.app, ledger.Booked, total=sum_("amount"))
    assert [len(each) for each in read] == [8, 8, 7]
    assert [one for each in read for one in each.field("amount").to_pylist()] == list(range(1, 24))


def test_a_file_that_was_changed_or_lost_is_refused(ledger: Any, folder: Path) -> None:
    path = folder / "export-000001/events/Booked/queue-000-v1.parquet"
    content = path.read_bytes()
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(ProjectionError, match=r"is not the file that was exported.*SHA-256"):
        files(folder, ledger.app, ledger.Booked)
    # What this projection does not read is not looked at.
    assert len(files(folder, ledger.app, ledger.Noted)) == 1
    path.unlink()
    with pytest.raises(ProjectionError, match=r"queue-000-v1\.parquet cannot be read"):
        files(folder, ledger.app, ledger.Booked)
    rewrite(folder, lambda told: told.pop("files"))
    with pytest.raises(
        ProjectionError, match=r"Booked does not hold the 2 events that export\.json"
    ):
        files(folder, ledger.app, ledger.Booked)
    # A part of an older version has no digests, and is read all the same.
    path.write_bytes(content)
    assert len(files(folder, ledger.app, ledger.Booked)) == 2


def test_a_part_that_leaves_out_events_is_refused(ledger: Any, folder: Path) -> None:
    rewrite(folder, lambda told: told.update(left_out={"z": "does not decode"}))
    with pytest.raises(ProjectionError, match="leaves out events of 1 aggregates, such as z"):
        files(folder, ledger.app, ledger.Booked)


def test_a_part_with_events_that_had_no_class_is_refused(ledger: Any, folder: Path) -> None:
    rewrite(folder, lambda told: told.update(unknown={"Else version 1": 1}))
    with pytest.raises(
        ProjectionError, match=r"of which there was no class, such as Else version 1"
    ):
        files(folder, ledger.app, ledger.Booked)


def test_a_part_that_no_store_has_vouched_for_is_refused_where_that_is_wanted(
    ledger: Any, folder: Path
) -> None:
    with pytest.raises(ProjectionError, match="without an event store that vouches for its events"):
        files(folder, ledger.app, ledger.Booked, vouched=True)
    for number in (1, 2):
        rewrite(folder, lambda told: told.update(vouched=True), number)
    assert len(files(folder, ledger.app, ledger.Booked, vouched=True)) == 2


def app_with(event: type[DomainEvent]) -> App:
    class Ledger(Aggregate):
        @applies
        def _booked(self, event: event) -> None:  # type: ignore[valid-type]  # made for the test
            pass

    app = App("ledger")
    app.add(Ledger)
    return app


def test_files_that_other_classes_have_made_are_refused(folder: Path) -> None:
    class Booked(DomainEvent, version=2):
        partner: str
        amount: int
        place: str

    app = app_with(Booked)

    @app.upcasts(Booked, 1)
    def booked_2(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "place": "here"}

    with pytest.raises(ProjectionError, match=r"holds version 1 of Booked, which .* a newer one"):
        files(folder, app, Booked)


def test_files_with_other_columns_are_refused(folder: Path) -> None:
    def other(**fields: Any) -> type[DomainEvent]:
        return type("Booked", (DomainEvent,), {"__annotations__": fields, "__module__": __name__})

    more = other(partner=str, amount=int, place=str)
    with pytest.raises(ProjectionError, match="has no column place; export into an empty folder"):
        files(folder, app_with(more), more, said=last("place"))
    # It is read as long as nothing asks for the new field.
    assert len(files(folder, app_with(more), more, said=last("partner"))) == 2
    wide = other(partner=str, amount=str)
    with pytest.raises(ProjectionError, match="has amount as int64"):
        files(folder, app_with(wide), wide, said=last("amount"))


def test_a_part_of_an_older_version_is_refused_where_order_matters(
    ledger: Any, folder: Path
) -> None:
    path = folder / "export-000001/events/Booked/queue-000-v1.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["_order"]), path)
    rewrite(folder, lambda told: told.pop("files"))
    assert len(files(folder, ledger.app, ledger.Booked, said=last("partner"))) == 2
    projection = Projection("shared", row=Row, key="key")
    projection.on(ledger.Booked, key="partner", said=last("partner"))
    registry = ledger.app.serializer.events
    plan = plan_columns(projection, registry.types.values())
    [old, new] = find_files(folder, parts_of(folder, "ledger.events"), plan, registry)
    assert len(list(read_events(new, plan))) == 1
    with pytest.raises(ProjectionError, match="has no column _order; export into an empty folder"):
        list(read_events(old, plan))
