"""The migrations make exactly the tables that the code knows, and take them away again."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import CommandLine
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Connection, bindparam, inspect, select, text

from headrace.errors import DefinitionError, SchemaOutOfDate
from headrace.processes.instances import read_instances
from headrace.stores.database.engines import create_engine
from headrace.stores.database.parked import ParkedStore, new_row, read_live_letters
from headrace.stores.database.schema import (
    VERSION_TABLE,
    check,
    downgrade,
    migrations_folder,
    upgrade,
)
from headrace.stores.database.tables import (
    UtcDateTime,
    event_streams,
    metadata,
    parked_rows,
    process_journal,
    projections,
)
from headrace.stores.open import open_command_letters
from headrace.stores.subject_keys import DatabaseKeys
from headrace.testing.conformance.letters import letter


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'headrace.db'}"
    url: str = request.getfixturevalue("postgres_database")
    return url


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE, "compare_server_default": False}
    )
    return list(compare_metadata(context, metadata))


def _shape(connection: Connection) -> dict[str, object]:
    inspector = inspect(connection)
    return {
        name: (
            [
                (column["name"], str(column["type"]), column["nullable"])
                for column in inspector.get_columns(name)
            ],
            inspector.get_pk_constraint(name)["constrained_columns"],
            sorted(
                (unique["name"] or "", unique["column_names"])
                for unique in inspector.get_unique_constraints(name)
            ),
        )
        for name in metadata.tables
    }


async def test_the_sum_of_the_migrations_is_the_tables(database: str) -> None:
    await upgrade(database)
    engine = create_engine(database)
    async with engine.begin() as connection:
        assert await connection.run_sync(_differences) == []
        migrated = await connection.run_sync(_shape)
        await connection.run_sync(metadata.drop_all)
        await connection.run_sync(metadata.create_all)
        assert await connection.run_sync(_shape) == migrated
    await engine.dispose()


async def test_the_comparison_would_notice_a_difference(database: str) -> None:
    await upgrade(database)
    engine = create_engine(database)
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE projections ADD COLUMN mood VARCHAR(9)"))
        assert len(await connection.run_sync(_differences)) == 1
    await engine.dispose()


async def test_every_migration_goes_down_and_up_again(database: str) -> None:
    await upgrade(database)
    await downgrade(database, "base")
    engine = create_engine(database)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    assert set(names) <= {VERSION_TABLE}
    await upgrade(database)
    async with engine.begin() as connection:
        assert await connection.run_sync(_differences) == []
    await engine.dispose()


async def test_events_survive_the_way_to_the_newest_schema_and_back(database: str) -> None:
    await upgrade(database, "0001")
    with pytest.raises(SchemaOutOfDate, match="headrace db upgrade"):
        await check(database)
    engine = create_engine(database)
    async with engine.begin() as connection:
        await connection.execute(
            event_streams.insert().values(
                aggregate_id="a",
                aggregate_type="Account",
                version=1,
                command_id="c",
                recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
                body="{}",
            )
        )
    await upgrade(database)
    await check(database)
    await downgrade(database, "0001")
    async with engine.connect() as connection:
        assert (await connection.execute(select(event_streams.c.command_id))).all() == [("c",)]
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    await engine.dispose()
    assert "snapshots" not in names


OLD_LETTER = (
    "INSERT INTO projection_letters (name, generation, aggregate_id, topic, queue_id,"
    " message_offset, parked_at, held, retries, error) VALUES ('handlers:mail', 0, 'a', 't', 0,"
    " 7, '2026-01-31 12:00:00', 2, 1, 'no')"
)


async def test_letters_survive_the_way_to_the_newest_schema_and_back(database: str) -> None:
    await upgrade(database, "0008")
    engine = create_engine(database)
    async with engine.begin() as connection:
        await connection.execute(text(OLD_LETTER))
    await upgrade(database)
    async with engine.begin() as connection:
        (parked,) = await connection.run_sync(ParkedStore("handlers:mail").read)
        place = {"name": f"process:{'x' * 100}", "generation": 0, "aggregate_id": "b"}
        where = {"topic": "t", "queue_id": 0, "message_offset": 7, "parked_at": parked.parked_at}
        row = place | where | new_row(ValueError("no"))
        await connection.execute(parked_rows.insert().values(row))
    assert (parked.version, parked.held, parked.retries) == (0, 2, 1)
    assert (parked.error, parked.traceback) == ("no", "")
    await downgrade(database, "0008")
    async with engine.connect() as connection:
        names = (await connection.execute(text("SELECT name FROM projection_letters"))).scalars()
        assert list(names) == ["handlers:mail"]
    await engine.dispose()


async def test_letters_of_every_kind_come_into_the_one_table_and_go_back(database: str) -> None:
    await upgrade(database, "0013")
    engine = create_engine(database)
    names = ("handlers:mail", "process:packing", "sales")
    command = (
        "INSERT INTO command_letters (number, aggregate_id, command_id, name, state, parked_at,"
        " attempts, error, sentence, message, trace) VALUES (:number, 'o-1', :id, 'Ship', :state,"
        " '2026-01-31 12:00:00', 3, 'ValueError', 'no ship', :message, 'line 1')"
    )
    message = msgspec.msgpack.encode({"key": "o-1", "headers": {"a": "b"}, "body": b"{}"})
    rows = [
        {"number": 4, "id": "c-1", "state": "holding", "message": message},
        {"number": 6, "id": "c-2", "state": "held", "message": message},
    ]
    async with engine.begin() as connection:
        for name in names:
            generation = "1" if name == "sales" else "0"
            new = f"'{name}', {generation}"
            await connection.execute(text(OLD_LETTER.replace("'handlers:mail', 0", new)))
        await connection.execute(text(command), rows)
        await connection.execute(
            projections.insert().values(name="sales", generation=1, fingerprint="f")
        )
    await upgrade(database)
    letters = await open_command_letters(database)
    first, second = await letters.read()
    assert [(each.number, each.command_id, each.state) for each in (first, second)] == [
        (4, "c-1", "holding"),
        (6, "c-2", "held"),
    ]
    assert (first.name, first.attempts, first.error) == ("Ship", 3, "ValueError")
    assert (first.sentence, first.trace, first.body) == ("no ship", "line 1", b"{}")
    assert await letters.first_in_line("o-1") == first
    assert await letters.finish(first)
    assert await letters.count() == 1
    async with engine.begin() as connection:
        found = await connection.run_sync(read_live_letters)
        assert [name for name, _ in found] == list(names)
        assert {(each.aggregate_id, each.held, each.retries) for _, each in found} == {("a", 2, 1)}
        assert {(each.offset, each.error) for _, each in found} == {(7, "no")}
        mail = ParkedStore("handlers:mail")
        await connection.run_sync(mail.fail, "a", KeyError("again"))
        (again,) = await connection.run_sync(mail.read)
        assert (again.retries, again.error_name) == (2, "KeyError")
        assert await connection.run_sync(mail.release, again)
    await downgrade(database, "0013")
    async with engine.connect() as connection:
        left = (
            await connection.execute(text("SELECT name, retries FROM projection_letters"))
        ).all()
        assert sorted(left) == [("process:packing", 1), ("sales", 1)]
        left = (await connection.execute(text("SELECT number, message FROM command_letters"))).all()
        assert [(number, bytes(body)) for number, body in left] == [(6, message)]
    await letters.aclose()
    await engine.dispose()


async def test_parked_instances_come_into_the_one_table_and_go_back(database: str) -> None:
    await upgrade(database, "0014")
    engine = create_engine(database)
    instance = (
        "INSERT INTO process_instances (process, instance, state, state_version, undo, ended,"
        " began_at, changed_at, last_event, last_aggregate_id, seen, sent, error, parked_at,"
        " retries, traceback) VALUES ('packing', :key, '{}', 1, '[]', :ended,"
        " '2026-01-30 12:00:00', '2026-01-31 12:00:00', 'Sold', 'o-1', 3, 0, :error, :parked_at,"
        " :retries, :traceback)"
    )
    since = datetime(2026, 1, 31, 12, tzinfo=UTC)
    rows = [
        {"key": key, "ended": ended, "error": error, "retries": retries, "traceback": traceback}
        | {"parked_at": None if error is None else since}
        for key, ended, error, retries, traceback in [
            ("runs", False, None, 0, None),
            ("stuck", False, "no box", 2, "line 1"),
            ("oldest", False, "no box", 0, None),
            ("over", True, "no box", 0, None),
        ]
    ]
    typed = text(instance).bindparams(
        bindparam("parked_at", type_=UtcDateTime()), bindparam("ended", type_=Boolean())
    )
    journal = process_journal.insert().values(process="packing", aggregate_id="o-1")
    seen = [
        {"instance": "stuck", "number": number, "command_id": f"c-{number}", "outcome": outcome}
        for number, outcome in ((1, "done"), (2, "waits"), (3, "waits"))
    ]
    async with engine.begin() as connection:
        await connection.execute(typed, rows)
        await connection.execute(journal, seen)
    await upgrade(database)
    async with engine.begin() as connection:
        found = await connection.run_sync(read_live_letters)
        assert {name for name, _ in found} == {"instances:packing"}
        letters = {each.aggregate_id: each for _, each in found}
        assert set(letters) == {"stuck", "oldest"}
        stuck = letters["stuck"]
        assert (stuck.error, stuck.error_name, stuck.traceback) == ("no box", "", "line 1")
        assert (stuck.parked_at, stuck.retries, stuck.held, stuck.queue) == (since, 2, 2, None)
        instances = await connection.run_sync(
            read_instances, "packing", ["runs", "stuck", "oldest", "over"]
        )
        parked = {key: one.parked for key, one in instances.items()}
        assert parked == {"runs": False, "stuck": True, "oldest": True, "over": False}
    await downgrade(database, "0014")
    async with engine.begin() as connection:
        left = await connection.execute(
            text("SELECT instance, error, retries, traceback FROM process_instances")
        )
        assert set(left.all()) == {
            ("runs", None, 0, None),
            ("stuck", "no box", 2, "line 1"),
            ("oldest", "no box", 0, ""),
            ("over", None, 0, None),
        }
        assert (await connection.execute(text("SELECT COUNT(*) FROM parked"))).scalar_one() == 0
    await engine.dispose()


async def test_a_number_of_a_command_that_is_gone_names_no_other_one(database: str) -> None:
    await upgrade(database, "0013")
    engine = create_engine(database)
    insert = (
        "INSERT INTO command_letters (aggregate_id, command_id, name, state, parked_at, attempts,"
        " error, sentence, message) VALUES ('o-1', 'c', 'Ship', 'parked', '2026-01-31 12:00:00',"
        " 1, '', '', '')"
    )
    async with engine.begin() as connection:
        await connection.execute(text(insert))
        await connection.execute(text("DELETE FROM command_letters"))
    await upgrade(database)
    letters = await open_command_letters(database)
    await letters.park([letter("o-1", "c-2")])
    (parked,) = await letters.read()
    assert parked.number > 1
    await letters.aclose()
    await engine.dispose()


@pytest.mark.parametrize("kind", ["TABLE parked (mine INTEGER)", "VIEW parked AS SELECT 1 AS mine"])
async def test_a_table_or_view_of_a_user_that_is_in_the_way_is_named(
    database: str, kind: str
) -> None:
    await upgrade(database, "0013")
    engine = create_engine(database)
    async with engine.begin() as connection:
        await connection.execute(text(f"CREATE {kind}"))
    with pytest.raises(DefinitionError, match="has a table or view 'parked' that is not Headrace"):
        await upgrade(database)
    async with engine.begin() as connection:
        await connection.execute(text(f"DROP {kind.partition(' ')[0]} parked"))
    await engine.dispose()
    # Nothing was changed, and nothing is left in the way.
    await upgrade(database)
    await check(database)


async def test_a_migration_that_fails_leaves_nothing(database: str) -> None:
    engine = create_engine(database)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE projections (mine INTEGER)"))
    with pytest.raises(DefinitionError, match="'projections'"):
        await upgrade(database)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    await engine.dispose()
    assert event_streams.name not in names
    assert VERSION_TABLE not in names


def test_there_is_one_line_of_migrations() -> None:
    scripts = ScriptDirectory(migrations_folder())
    assert len(scripts.get_heads()) == 1
    assert len(scripts.get_bases()) == 1


def test_a_developer_may_run_alembic_itself(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    options = ["-c", str(migrations_folder() / "alembic.ini"), "-x", f"url={url}"]
    with pytest.raises(SystemExit):
        CommandLine().main([*options, "check"])
    CommandLine().main([*options, "upgrade", "head"])
    CommandLine().main([*options, "check"])  # exits where the tables and the code differ
    asyncio.run(check(url))


async def test_keys_of_personal_fields_are_not_dropped_without_a_question(database: str) -> None:
    await upgrade(database)
    keys = DatabaseKeys(database)
    key = keys.make("c-1")
    keys.make("c-2")
    keys.forget("c-2")
    with pytest.raises(
        DefinitionError, match=r"still has keys \(1\), .*save the table first, .*delete all"
    ):
        await downgrade(database, "0018")
    await check(database)
    assert keys.find("c-1") == key
    # Those who were forgotten are no keys.
    keys.forget("c-1")
    keys.close()
    await downgrade(database, "0018")
    with pytest.raises(SchemaOutOfDate):
        await check(database)
