import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from headrace.stores.base import AppendOutcome
from headrace.stores.database.engines import create_engine
from headrace.stores.postgres.errors import outcome_of

INSERT = text(
    "INSERT INTO event_streams"
    " (aggregate_id, aggregate_type, version, command_id, recorded_at, body)"
    " VALUES (:aggregate_id, 'Notebook', :version, :command_id, now(), :body)"
)
FIRST = {"aggregate_id": "a", "version": 1, "command_id": "c", "body": "x"}


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"command_id": "d"}, AppendOutcome.VERSION_CONFLICT),
        ({"version": 2}, AppendOutcome.DUPLICATE_COMMAND),
        ({"version": 2, "command_id": "d", "body": None}, None),
    ],
)
async def test_a_violated_constraint_means(
    migrated_postgres: str, change: dict[str, object], outcome: AppendOutcome | None
) -> None:
    engine = create_engine(migrated_postgres)
    async with engine.connect() as connection:
        await connection.execute(INSERT, FIRST)
        with pytest.raises(IntegrityError) as violation:
            await connection.execute(INSERT, FIRST | change)
    await engine.dispose()
    assert outcome_of(violation.value) is outcome


def test_an_error_without_a_driver_s_error_means_nothing() -> None:
    assert outcome_of(IntegrityError("", None, ValueError())) is None
