"""
What a broker of a group remembers: the id of its store, the newest record that it saw, and the names of the group.

The id is made with the directory. A disk that comes back empty has another one, and so is another member of its group.
A record that is older than the newest one seen has gone back; nothing is decided by it. The record of another group is no
newer one: its messages are others at the same positions. A group of the same name has another id.

Used by `replicated_broker`; `metadata` has its file.
"""

import uuid

import msgspec

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    GroupRecord,
    Identity,
    RecordKeeper,
    RecordUnavailable,
    is_of_another_group,
)
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import GroupSettings

__all__ = [
    "KeptMember",
    "KeptRecord",
    "identity_of",
    "keep_seen",
    "refuse_another_group",
    "seen_of",
]


class KeptRecord(msgspec.Struct, frozen=True):
    """A record, as `GroupRecord` has it."""

    version: int
    epoch: int
    leader: str
    in_sync: list[tuple[str, str]]
    unclean: int = 0
    lossy: int = 0
    group_id: str = ""
    ack: str = ACK_IN_SYNC


class KeptMember(msgspec.Struct, frozen=True):
    """The content of `group.json`; the names are those of the group whose record was seen, empty if an earlier version wrote it."""

    store_id: str
    seen: KeptRecord | None = None
    cluster: str = ""
    group: str = ""


def identity_of(file: MetadataFile[KeptMember], group: GroupSettings, address: str) -> Identity:
    """Returns who this broker is in its group; a first start makes the id of its store, durably.

    Args:
        file: of what it remembers.
        group: that it starts in.
        address: where it listens; its name, unless the settings have one.

    Raises:
        DataCorrupt: the file is damaged.
        MessageQueueError: it is a broker of another group.
    """
    kept = file.read()
    if kept is None:
        kept = KeptMember(str(uuid.uuid4()))
        file.write(kept)
    me, seen = Identity(group.advertise or address, kept.store_id), seen_of(kept)
    if seen is not None and not kept.group:
        keep_seen(file, me, seen, group)
    elif seen is not None and (kept.cluster, kept.group) != (group.cluster, group.name):
        raise MessageQueueError(
            f"the folder with {file.path} is of a broker of the group {kept.group!r} in the cluster {kept.cluster!r}, not of"
            f" {group.name!r} in {group.cluster!r}; start it with --group {kept.group} --set group.cluster={kept.cluster}, or"
            " start with an empty folder to join the other group"
        )
    return me


async def refuse_another_group(
    file: MetadataFile[KeptMember], keeper: RecordKeeper, group: GroupSettings
) -> None:
    """Refuses a record that is of another group of the same name; where it does not answer, that shows later.

    Args:
        file: of what this broker remembers.
        keeper: of the record.
        group: that it starts in.

    Raises:
        MessageQueueError: the record has another id; the sentence says what to do.
    """
    seen = seen_of(file.read())
    if seen is None:
        return
    try:
        found = await keeper.read()
    except RecordUnavailable:
        return
    if is_of_another_group(seen, found):
        raise MessageQueueError(
            f"the folder with {file.path} is of a group {group.name!r} with the id {seen.group_id}, and this record is of"
            f" another group of that name, with the id {found.group_id}; check --record. To join the other group, start with"
            " an empty folder. If the record was deleted and made again, restore it, or see 'Make the group again' in"
            " docs/cluster.md"
        )


def keep_seen(
    file: MetadataFile[KeptMember], me: Identity, seen: GroupRecord, group: GroupSettings
) -> None:
    """Keeps the newest record that a broker saw, and the names of its group; durable on return."""
    file.write(KeptMember(me.store_id, _kept_of(seen), group.cluster, group.name))


def seen_of(kept: KeptMember | None) -> GroupRecord | None:
    """Returns the newest record that this broker saw."""
    if kept is None or kept.seen is None:
        return None
    members = frozenset(Identity(name, store) for name, store in kept.seen.in_sync)
    seen = kept.seen
    return GroupRecord(
        seen.version, seen.epoch, seen.leader, members, seen.unclean, seen.lossy, seen.group_id, seen.ack,
    )  # fmt: skip


def _kept_of(record: GroupRecord) -> KeptRecord:
    """Returns a record in the form in which it is kept."""
    members = sorted((one.name, one.store_id) for one in record.in_sync)
    return KeptRecord(
        record.version, record.epoch, record.leader, members,
        record.unclean, record.lossy, record.group_id, record.ack,
    )  # fmt: skip
