import sqlite3

import pytest
from sqlalchemy.exc import IntegrityError

from headrace.stores.base import AppendOutcome
from headrace.stores.sqlite.errors import outcome_of

INSERT = (
    "INSERT INTO event_streams"
    " (aggregate_id, aggregate_type, version, command_id, recorded_at, body)"
    " VALUES (?, 'Notebook', ?, ?, '2026-01-31', ?)"
)


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        (("a", 1, "d", "x"), AppendOutcome.VERSION_CONFLICT),
        (("a", 2, "c", "x"), AppendOutcome.DUPLICATE_COMMAND),
        (("a", 2, "d", None), None),
    ],
)
async def test_a_violated_constraint_means(
    sqlite_database: str, row: tuple[object, ...], outcome: AppendOutcome | None
) -> None:
    connection = sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))
    connection.execute(INSERT, ("a", 1, "c", "x"))
    with pytest.raises(sqlite3.IntegrityError) as violation:
        connection.execute(INSERT, row)
    connection.close()
    assert outcome_of(IntegrityError("", None, violation.value)) is outcome
