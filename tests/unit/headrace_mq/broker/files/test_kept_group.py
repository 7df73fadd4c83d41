"""A broker of a group keeps the id of its store, and the newest record."""

from pathlib import Path

import pytest

from headrace_mq.broker.files.kept_group import (
    KeptMember,
    identity_of,
    keep_seen,
    refuse_another_group,
    seen_of,
)
from headrace_mq.broker.metadata import group_file
from headrace_mq.cluster.member import ClusterMember, Turn
from headrace_mq.cluster.record import GroupRecord, Identity
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import GroupSettings

GROUP = GroupSettings(record="etcd://h:1", cluster="c", name="g1")


def test_a_store_keeps_its_id_and_an_empty_disk_has_another_one(tmp_path: Path) -> None:
    first = identity_of(group_file(tmp_path / "one"), GROUP, "h:1")
    assert identity_of(group_file(tmp_path / "one"), GROUP, "h:1") == first
    assert identity_of(group_file(tmp_path / "two"), GROUP, "h:1").store_id != first.store_id


def test_the_newest_record_is_found_again(tmp_path: Path) -> None:
    file = group_file(tmp_path)
    me = identity_of(file, GROUP, "h:1")
    assert seen_of(file.read()) is None
    record = GroupRecord(
        7, 3, "h:2", frozenset({me, Identity("h:2", "disk")}), 2, 3, "id", "leader"
    )
    keep_seen(file, me, record, GROUP)
    assert seen_of(file.read()) == record
    assert identity_of(file, GROUP, "h:1") == me


def test_a_broker_without_a_group_has_seen_nothing(tmp_path: Path) -> None:
    assert seen_of(group_file(tmp_path).read()) is None


def test_a_broker_of_one_group_is_no_broker_of_another_one(tmp_path: Path) -> None:
    file = group_file(tmp_path)
    mistyped = GroupSettings(record="etcd://h:1", cluster="c", name="g2")
    # Until a record was seen it is of no group: a mistyped name may be corrected.
    me = identity_of(file, mistyped, "h:1")
    keep_seen(file, me, GroupRecord(7, 3, "h:1", frozenset({me})), GROUP)
    for other in (mistyped, GroupSettings(record="etcd://h:1", cluster="d", name="g1")):
        with pytest.raises(
            MessageQueueError, match=r"start it with --group g1 --set group.cluster=c, or"
        ):
            identity_of(file, other, "h:1")
    assert identity_of(file, GROUP, "h:1") == me


def test_a_file_of_an_earlier_version_gets_the_names_of_its_group(tmp_path: Path) -> None:
    file = group_file(tmp_path)
    me = identity_of(file, GROUP, "h:1")
    keep_seen(file, me, GroupRecord(7, 3, "h:1", frozenset({me})), GROUP)
    kept = file.read()
    assert kept is not None
    file.write(KeptMember(kept.store_id, kept.seen))
    assert identity_of(file, GROUP, "h:1") == me
    assert file.read() == kept


async def test_a_broker_refuses_the_record_of_another_group_of_the_same_name(
    tmp_path: Path,
) -> None:
    file, record = group_file(tmp_path), MemoryRecord()
    me = identity_of(file, GROUP, "h:1")
    made = await record.create(me, [me])
    # A new member has no group yet.
    await refuse_another_group(file, record, GROUP)
    keep_seen(file, me, made, GROUP)
    await refuse_another_group(file, record, GROUP)
    other = MemoryRecord()
    found = await other.create(me, [me], 9)
    with pytest.raises(MessageQueueError, match=rf"{made.group_id}.*{found.group_id}; check --rec"):
        await refuse_another_group(file, other, GROUP)
    # That shows once it answers.
    other.is_away = True
    await refuse_another_group(file, other, GROUP)


async def test_a_folder_of_an_earlier_version_takes_the_id_of_its_record_once(
    tmp_path: Path,
) -> None:
    file, record = group_file(tmp_path), MemoryRecord()
    me = identity_of(file, GROUP, "h:1")
    made = await record.create(me, [me])
    keep_seen(file, me, made._replace(group_id=""), GROUP)
    await refuse_another_group(file, record, GROUP)
    member = ClusterMember(me, {}, seen=seen_of(file.read()))
    assert (member.on_record(made), member.is_frozen) == (Turn.GO_ON, False)
    assert member.seen is not None
    keep_seen(file, me, member.seen, GROUP)
    other = MemoryRecord()
    await other.create(me, [me])
    with pytest.raises(MessageQueueError, match="with the id"):
        await refuse_another_group(file, other, GROUP)
