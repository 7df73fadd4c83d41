"""
What says of a part that it is sealed: a file next to its description.

    DIR/export-000001/export.json    what the part holds, with the digest of each file
    DIR/export-000001/sealed.json    the digest of export.json, and which event store agreed

It is written under another name, flushed to disk and renamed, when the part was compared with the event
store. A part without it is only exported. Used by `seal` and `trim`. It must not know what events mean.
"""

from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from headrace._runtime.private_files import open_new
from headrace.errors import ProjectionError
from headrace.spark.archive import (
    ExportedPart,
    FileDigest,
    digest_of,
    digests_of,
    flush,
    manifest_of,
    part_folder,
)

__all__ = ["SealedRecord", "changed_files", "read_record", "sealed_through", "write_record"]

_RECORD: Final = "sealed.json"
_WRITING: Final = ".sealed.json.writing"


class SealedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a comparison that found nothing wrong.

    Attributes:
        part: its number.
        manifest: the digest of the part's description, which has those of its files.
        store: the id of the event store that holds the same.
        sealed_at: when the comparison ended, UTC.
        topic_identity: of the topic, as the broker tells it; another topic of its name has another.
        messages: how many were compared, rejections and heartbeats included.
        foreign: messages that the store does not vouch for; readers pass them over.
        left_out: aggregates with events that do not decode; their messages are kept.
        filled: streams that the part has from the store, because the topic lacked them.
    """

    part: int
    manifest: FileDigest
    store: str
    sealed_at: datetime
    topic_identity: str
    messages: int
    foreign: int = 0
    left_out: int = 0
    filled: int = 0


_decode = msgspec.json.Decoder(SealedRecord).decode


def read_record(folder: Path, number: int) -> SealedRecord | None:
    """Returns what says that a part is sealed; None: it is not.

    Raises:
        ProjectionError: it cannot be read, or is of another state of the part.
    """
    place = part_folder(folder, number)
    try:
        record = _decode((place / _RECORD).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ProjectionError(
            f"{place / _RECORD} cannot be read: {error}; restore it from a copy, or delete it and seal"
            " the part again"
        ) from error
    if record.part != number or record.manifest != digest_of(manifest_of(place)):
        raise ProjectionError(
            f"{place}: export.json is not the one that was sealed; restore the part from a copy"
        )
    return record


def write_record(folder: Path, record: SealedRecord) -> None:
    """Notes that a part is sealed; durable on return."""
    place = part_folder(folder, record.part)
    writing = place / _WRITING
    with open_new(writing, "wb") as file:
        file.write(msgspec.json.encode(record))
    flush(writing)
    writing.rename(place / _RECORD)
    flush(place)


def sealed_through(folder: Path, parts: list[ExportedPart]) -> ExportedPart | None:
    """Returns the last part up to which all parts are sealed by one event store; None: there is none.

    Raises:
        ProjectionError: a record cannot be read, or is of another state of its part.
    """
    last: ExportedPart | None = None
    store = ""
    for part in parts:
        record = read_record(folder, part.number)
        if record is None or (store and record.store != store):
            break
        last, store = part, record.store
    return last


def changed_files(folder: Path, part: ExportedPart) -> list[str]:
    """Returns a sentence for each file of a part that is not what was exported, and for each new one.

    Reads all of the part.
    """
    place = part_folder(folder, part.number)
    found = digests_of(place)
    sentences = [f"{place / name} is missing" for name in sorted(part.files.keys() - found.keys())]
    for name, digest in sorted(found.items()):
        known = part.files.get(name)
        if known is None:
            sentences.append(f"{place / name} is not of the part")
        elif known != digest:
            sentences.append(f"{place / name} is not the file that was exported")
    return sentences
