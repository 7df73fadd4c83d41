"""A broker of a group keeps the id of its store, and the newest record."""

from pathlib import Path

from headrace_mq.broker.files.kept_group import KeptMember, identity_of, kept_of, seen_of
from headrace_mq.broker.metadata import group_file
from headrace_mq.cluster.record import GroupRecord, Identity


def test_a_store_keeps_its_id_and_an_empty_disk_has_another_one(tmp_path: Path) -> None:
    first = identity_of(group_file(tmp_path / "one"), "h:1")
    assert identity_of(group_file(tmp_path / "one"), "h:1") == first
    assert identity_of(group_file(tmp_path / "two"), "h:1").store_id != first.store_id


def test_the_newest_record_is_found_again(tmp_path: Path) -> None:
    file = group_file(tmp_path)
    me = identity_of(file, "h:1")
    assert seen_of(file.read()) is None
    record = GroupRecord(7, 3, "h:2", frozenset({me, Identity("h:2", "disk")}), 2)
    file.write(KeptMember(me.store_id, kept_of(record)))
    assert seen_of(file.read()) == record
    assert identity_of(file, "h:1") == me


def test_a_broker_without_a_group_has_seen_nothing(tmp_path: Path) -> None:
    assert seen_of(group_file(tmp_path).read()) is None
