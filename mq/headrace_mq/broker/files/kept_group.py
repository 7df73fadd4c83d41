"""
What a broker of a group remembers: the id of its store, and the newest record that it saw.

The id is made with the directory. A disk that comes back empty has another one, and so is another member of its group.
A record that is older than the newest one seen has gone back; nothing is decided by it.

Used by `replicated_broker`; `metadata` has its file.
"""

import uuid

import msgspec

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.cluster.record import GroupRecord, Identity

__all__ = ["KeptMember", "KeptRecord", "identity_of", "kept_of", "seen_of"]


class KeptRecord(msgspec.Struct, frozen=True):
    """A record, as `GroupRecord` has it."""

    version: int
    epoch: int
    leader: str
    in_sync: list[tuple[str, str]]
    unclean: int = 0


class KeptMember(msgspec.Struct, frozen=True):
    """The content of `group.json`."""

    store_id: str
    seen: KeptRecord | None = None


def identity_of(file: MetadataFile[KeptMember], name: str) -> Identity:
    """Returns who this broker is in its group; a first start makes the id of its store, durably.

    Raises:
        DataCorrupt: the file is damaged.
    """
    kept = file.read()
    if kept is None:
        kept = KeptMember(str(uuid.uuid4()))
        file.write(kept)
    return Identity(name, kept.store_id)


def seen_of(kept: KeptMember | None) -> GroupRecord | None:
    """Returns the newest record that this broker saw."""
    if kept is None or kept.seen is None:
        return None
    members = frozenset(Identity(name, store) for name, store in kept.seen.in_sync)
    seen = kept.seen
    return GroupRecord(seen.version, seen.epoch, seen.leader, members, seen.unclean)


def kept_of(record: GroupRecord) -> KeptRecord:
    """Returns a record in the form in which it is kept."""
    members = sorted((one.name, one.store_id) for one in record.in_sync)
    return KeptRecord(record.version, record.epoch, record.leader, members, record.unclean)
