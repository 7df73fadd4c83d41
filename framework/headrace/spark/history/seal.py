"""
Seals the history of an event topic: writes what is new as a part, and compares it with the event store.

    export ─▶ part ─▶ digests of its files ─▶ comparison ─▶ sealed.json

A part that another export has written is sealed too. A process that is killed leaves parts that are
only exported, and the next one goes on with them. One process seals a folder at a time.

Used by `headrace history seal` and `headrace history verify`.
"""

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.private_files import make_folder, open_new
from headrace.app import load_app
from headrace.errors import ProjectionError
from headrace.events.publisher import event_topic
from headrace.spark.analysis.export import export_events
from headrace.spark.archive import ExportedPart, digest_of, exported_parts, manifest_of, part_folder
from headrace.spark.history.proof import PartProof, StoreProof
from headrace.spark.history.record import SealedRecord, changed_files, read_record, write_record
from headrace.spark.history.verdict import Found
from headrace.transports.topic_reader import topic_identity
from headrace_mq.errors import MessageQueueError

__all__ = ["Sealing", "Verified", "seal_history", "sealing", "verify_history"]

_LOCK: Final = ".sealing.lock"


@dataclass(slots=True, kw_only=True)
class Sealing:
    """What one call has sealed.

    Attributes:
        sealed: the parts that are sealed now and were not before.
        notes: sentences that name foreign messages and aggregates that are left out.
        differences: sentences that say why a part is not sealed; it is the last one looked at.
        parts: how many parts there are.
    """

    sealed: list[SealedRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    parts: int = 0

    def to_json(self) -> str:
        """Returns it as one line of JSON."""
        return msgspec.json.encode(self).decode()


@dataclass(slots=True, kw_only=True)
class Verified:
    """What a check of all parts has found.

    Attributes:
        parts: how many there are.
        sealed: how many of them are sealed.
        messages: how many were compared.
        foreign: how many of them the event store does not vouch for.
        differences: sentences that name what differs.
    """

    parts: int = 0
    sealed: int = 0
    messages: int = 0
    foreign: int = 0
    differences: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Returns it as one line of JSON."""
        return msgspec.json.encode(self).decode()


@contextmanager
def sealing(folder: Path) -> Iterator[None]:
    """Keeps other processes from sealing a folder, which is made if it is not there.

    Raises:
        ProjectionError: another process seals it.
    """
    make_folder(folder)
    with open_new(folder / _LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ProjectionError(
                f"another process seals {folder}; stop it, or let it do the work"
            ) from error
        yield


def seal_history(
    app: str, folder: Path, *, broker: str, event_store_url: str, clock: Clock | None = None
) -> Sealing:
    """Writes what the event topic holds beyond the last part, and seals each part that is not sealed.

    Call it inside `sealing`.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        folder: where the parts are.
        broker: its address, or a Kafka cluster's.
        event_store_url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.
        clock: measures, and tells when a part was sealed.

    Raises:
        ProjectionError: as for `export_events`; or a record cannot be read.
        SchemaOutOfDate: there is no event store, or its schema is not this version's.
        DefinitionError: the event store is in memory.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    clock = clock or SystemClock()
    with closing(
        StoreProof(event_store_url, load_app(app).serializer_at(event_store_url))
    ) as store:
        # Before anything is written: most mistakes are in a URL.
        store.identity()
        identity = asyncio.run(_identity_of(broker, event_topic(load_app(app).name)))
        _check_topic(folder, identity)
        export_events(app, folder, broker=broker, event_store_url=event_store_url, clock=clock)
        outcome = Sealing()
        for part in exported_parts(folder):
            outcome.parts += 1
            if read_record(folder, part.number) is not None:
                continue
            outcome.differences, proof = _check(folder, part, store)
            if outcome.differences or proof is None:
                break
            outcome.notes += [*proof.foreign, *part.left_out.values()]
            record = _record(folder, proof, (store.identity().id, identity), clock)
            write_record(folder, record)
            outcome.sealed.append(record)
        return outcome


def verify_history(app: str, folder: Path, *, event_store_url: str) -> Verified:
    """Compares every file with its digest, and every message with the event store.

    Args:
        app: the application's import path.
        folder: where the parts are.
        event_store_url: as for `seal_history`.

    Raises:
        ProjectionError: there are no parts, or they are of another application.
        SchemaOutOfDate: there is no event store, or its schema is not this version's.
        DefinitionError: the event store is in memory.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    application, found = load_app(app), Verified()
    try:
        parts = exported_parts(folder)
    except ProjectionError as error:
        return Verified(differences=[str(error)])
    if not parts:
        raise ProjectionError(
            f"{folder} holds no history; write it with `headrace history seal {folder}`"
        )
    topic = event_topic(application.name)
    if parts[0].topic != topic:
        raise ProjectionError(f"{folder} holds events of {parts[0].topic}, not of {topic}")
    with closing(StoreProof(event_store_url, application.serializer_at(event_store_url))) as store:
        for part in parts:
            found.parts += 1
            try:
                record = read_record(folder, part.number)
            except ProjectionError as error:
                found.differences.append(str(error))
                continue
            if record is not None and record.store != store.identity().id:
                found.differences.append(
                    f"{part_folder(folder, part.number)} was sealed with another event store,"
                    f" {record.store}"
                )
                continue
            found.sealed += record is not None
            sentences, proof = _check(folder, part, store)
            found.differences += sentences
            if proof is not None:
                found.messages += proof.messages
                found.foreign += proof.counts[Found.FOREIGN]
    return found


def _check(
    folder: Path, part: ExportedPart, store: StoreProof
) -> tuple[list[str], PartProof | None]:
    """Returns what speaks against a part, and the comparison; None: its files are not the part's."""
    place = part_folder(folder, part.number)
    if not part.vouched:
        why = f"{place} was exported with --unsealed; seal into an empty folder"
        return [why], None
    if not part.files:
        why = (
            f"{place} has no digests, because it is of an older version; seal into an empty folder"
        )
        return [why], None
    if changed := changed_files(folder, part):
        return changed, None
    proof = store.prove(folder, part)
    return proof.differences, proof


async def _identity_of(broker: str, topic: str) -> str:
    try:
        return await topic_identity(broker, topic)
    except MessageQueueError as error:
        raise ProjectionError(f"topic {topic}: {error}") from error


def _check_topic(folder: Path, identity: str) -> None:
    """Refuses to add parts of another topic of the same name."""
    for part in exported_parts(folder):
        record = read_record(folder, part.number)
        if record is not None and record.topic_identity != identity:
            raise ProjectionError(
                f"{part.topic} was made again since part {part.number} of {folder} was sealed; seal it"
                " into an empty folder"
            )


def _record(
    folder: Path, proof: PartProof, identities: tuple[str, str], clock: Clock
) -> SealedRecord:
    part, (store, topic) = proof.part, identities
    return SealedRecord(
        part=part.number,
        manifest=digest_of(manifest_of(part_folder(folder, part.number))),
        store=store,
        topic_identity=topic,
        sealed_at=clock.now(),
        messages=proof.messages,
        foreign=proof.counts[Found.FOREIGN],
        left_out=len(part.left_out),
        filled=part.filled,
    )
