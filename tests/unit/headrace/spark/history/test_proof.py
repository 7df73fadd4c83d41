"""How the differences of a part are named and counted."""

from pathlib import Path

import pytest

from headrace.domain.message import Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.errors import ProjectionError, SchemaOutOfDate
from headrace.serialization import JsonSerializer
from headrace.spark.archive import ExportedPart, part_folder, queue_file
from headrace.spark.history.proof import NAMED_MAX, PartProof, StoreProof, _read
from headrace.spark.history.verdict import Deviation, Found

PART = ExportedPart(number=1, app="a:app", topic="a.events", start={0: 0}, end={0: 5})


def test_some_of_each_kind_are_named_all_are_counted_and_foreign_ones_are_apart() -> None:
    proof = PartProof(part=PART)
    for found in (Found.MISSING, Found.FOREIGN):
        proof.add("a.events/0", [Deviation(found, n, "a-1", 3, f"c-{n}") for n in range(50)])
    assert proof.counts == {Found.MISSING: 50, Found.FOREIGN: 50}
    assert len(proof.differences) == len(proof.foreign) == NAMED_MAX
    assert proof.differences[0] == (
        "a.events/0 offset 0: 'a-1' version 3, command 'c-0': the event store has no such stream"
    )


def test_messages_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = queue_file(part_folder(tmp_path, 1), "messages", 0)
    with pytest.raises(ProjectionError, match="restore it from a copy"):
        list(_read(path))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no Parquet")
    with pytest.raises(ProjectionError, match="restore it from a copy"):
        list(_read(path))


def test_a_store_that_is_not_there_is_refused(tmp_path: Path) -> None:
    serializer = JsonSerializer(Registry[Command]("command"), Registry[DomainEvent]("event"))
    proof = StoreProof(f"sqlite:///{tmp_path / 'no.db'}", serializer)
    with pytest.raises(SchemaOutOfDate):
        proof.identity()
    proof.close()
