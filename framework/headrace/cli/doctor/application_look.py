"""
Looks at an application for `headrace doctor`: its databases, what it has parked, where its projections stand.

Used by the command; uses the databases as they are. It makes no table, and changes nothing.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.cli.doctor.application_rules import DatabaseFacts, ParkedFacts
from headrace.cli.doctor.broker_rules import DeclaredTopic
from headrace.cli.doctor.machine_rules import DiskFacts

if TYPE_CHECKING:
    from sqlalchemy import URL

    from headrace.app import App
    from headrace.settings import Settings
    from headrace.watch.lag import ProjectionLag

__all__ = [
    "Standing",
    "declared_topics",
    "look_at_database",
    "look_at_disk",
    "look_at_parked",
    "look_at_projections",
]

_CONNECT_MS: Final = 3_000
_DAY: Final = timedelta(days=1)
# A rate of growth over less time says nothing.
_GROWTH_MIN: Final = timedelta(hours=1)


class Standing(NamedTuple):
    """Where projections stand, and the names of those without tables."""

    lags: "Sequence[ProjectionLag]"
    without_tables: Sequence[str]


def declared_topics(app: "App", settings: "Settings") -> list[DeclaredTopic]:
    """Returns the topics that an application asks for at its start.

    Raises:
        DefinitionError: it is put together wrongly, or the settings choose a topic that it does not have.
    """
    from headrace.domain.topics import CommandTopics
    from headrace.events.publisher import event_topic, message_topic

    topics = CommandTopics(app.name, app.command_types)
    topics.chosen(settings.command_topics)
    commands = [
        DeclaredTopic(name, settings.command_queues, "transient") for name in topics.chosen()
    ]
    return [
        *commands,
        DeclaredTopic(event_topic(app.name), settings.event_queues, "forever"),
        DeclaredTopic(message_topic(app.name), settings.event_queues, "transient"),
    ]


async def look_at_database(what: str, url: str, *, archive: bool = False) -> DatabaseFacts:
    """Returns whether a database answers and has this version's schema, and its size.

    Raises:
        Exception: of the database; `headrace.cli.sentences` has a sentence for it.
    """
    from headrace.stores.database.engines import database_url
    from headrace.stores.database.schema import ARCHIVE, check
    from headrace.stores.open import is_kept_in_memory

    if is_kept_in_memory(url):
        return DatabaseFacts(what, in_memory=True)
    # The schema of the application's own tables unless it is said.
    await (check(url, tree=ARCHIVE) if archive else check(url))
    file = _file_of(database_url(url))
    return DatabaseFacts(what, size=await _postgres_size(url) if file is None else _size(file))


async def _postgres_size(url: str) -> int:
    from sqlalchemy import text

    from headrace.stores.database.engines import autocommit, create_engine

    engine = create_engine(url)
    try:
        async with autocommit(engine).connect() as connection:
            query = text("SELECT pg_database_size(current_database())")
            return int((await connection.execute(query)).scalar_one())
    finally:
        await engine.dispose()


async def look_at_disk(what: str, url: str) -> DiskFacts | None:
    """Returns the room on the disk of an SQLite file and how fast it grows; None for other databases.

    The file must have this version's schema.
    """
    from sqlalchemy import select

    from headrace.stores.database.engines import autocommit, create_engine, database_url
    from headrace.stores.database.tables import event_streams
    from headrace_mq._runtime.usage import usage

    file = _file_of(database_url(url))
    if file is None:
        return None
    columns = event_streams.c
    first = select(columns.recorded_at).order_by(columns.position).limit(1)
    engine = create_engine(url)
    try:
        async with autocommit(engine).connect() as connection:
            since = (await connection.execute(first)).scalar_one_or_none()
    finally:
        await engine.dispose()
    age = timedelta(0) if since is None else datetime.now(UTC) - since
    grows = _size(file) / (age / _DAY) if age >= _GROWTH_MIN else None
    room = usage(file.absolute().parent)
    return DiskFacts(what, room.disk_bytes, room.disk_free_bytes, grows)


def _file_of(url: "URL") -> Path | None:
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def _size(file: Path) -> int:
    """Returns the size of a file of SQLite with its log, in bytes."""
    parts = [file.with_name(f"{file.name}{end}") for end in ("", "-wal")]
    return sum(each.stat().st_size for each in parts if each.exists())


async def look_at_parked(settings: "Settings") -> list[ParkedFacts]:
    """Returns what is parked, by processor.

    The databases must have this version's schema.
    """
    from headrace.parked import processor_of
    from headrace.projections.tables.read_models import ReadModels
    from headrace.stores.database.parked import read_parked_counts
    from headrace.stores.open import open_command_letters

    found, now = [], datetime.now(UTC)
    letters = await open_command_letters(settings.event_store)
    try:
        oldest = await letters.read(limit=1)
        count = await letters.count() if oldest else 0
    finally:
        await letters.aclose()
    found += [ParkedFacts("commands", count, _age_ms(now, each.parked_at)) for each in oldest]
    models = ReadModels(settings.read_models)
    try:
        async with models.snapshot() as connection:
            rows = await connection.run_sync(read_parked_counts)
    finally:
        await models.aclose()
    for name, count, since in rows:
        found.append(ParkedFacts(processor_of(name), count, _age_ms(now, since)))
    return found


def _age_ms(now: datetime, since: datetime) -> int:
    return max(0, (now - since) // timedelta(milliseconds=1))


async def look_at_projections(app: "App", settings: "Settings") -> Standing:
    """Returns where an application's projections stand; the broker must answer and have the event topic.

    Raises:
        Exception: of the database or the queue.
    """
    from headrace.errors import ProjectionNotFound
    from headrace.projections.tables.read_models import ReadModels
    from headrace.transports.open import open_transport
    from headrace.watch.lag import Lags

    models = ReadModels(settings.read_models)
    try:
        there: dict[str, Any] = {}
        for name, projection in sorted(app.projections.items()):
            try:
                await models.state(name)
            except ProjectionNotFound:
                continue
            there[name] = projection
        missing = sorted(app.projections.keys() - there.keys())
        if not there:
            return Standing((), missing)
        opening = partial(open_transport, settings.broker, within_ms=_CONNECT_MS)
        async with opening() as transport:
            lags = Lags(
                app_name=app.name, projections=there, read_models=models, transport=transport
            )
            return Standing(await lags.measure(), missing)
    finally:
        await models.aclose()
