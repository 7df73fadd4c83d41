"""`headrace archive`: the tables of the archive come, are checked, and are PostgreSQL's alone."""

from typer.testing import CliRunner, Result

from headrace.cli import _command_line


def archive(*arguments: str) -> Result:
    return CliRunner().invoke(_command_line(), ["archive", *arguments])


def test_the_tables_are_made_once_and_checked(postgres_database: str) -> None:
    behind = archive("check", "--url", postgres_database)
    assert "headrace archive upgrade" in str(behind.exception)
    for _ in range(2):
        assert (
            archive("upgrade", "--url", postgres_database).output == "the archive is up to date\n"
        )
    assert archive("check", "--url", postgres_database).output == "the archive is up to date\n"


def test_one_database_holds_an_archive_and_an_event_store(postgres_database: str) -> None:
    events = CliRunner().invoke(_command_line(), ["db", "upgrade", "--url", postgres_database])
    assert events.exit_code == 0
    assert archive("upgrade", "--url", postgres_database).exit_code == 0
    assert archive("check", "--url", postgres_database).exit_code == 0


def test_other_databases_hold_no_archive() -> None:
    refused = archive("upgrade", "--url", "sqlite:///x.db")
    assert "an archive is a database of PostgreSQL" in str(refused.exception)
