from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import create_engine, insert, select, text
from sqlalchemy.exc import StatementError

from headrace.stores.database.tables import metadata, projections

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)


def test_the_tables_are_these() -> None:
    assert sorted(metadata.tables) == [
        "event_streams",
        "parked",
        "process_commands",
        "process_instances",
        "process_journal",
        "process_versions",
        "processes",
        "projection_generations",
        "projection_offsets",
        "projection_versions",
        "projections",
        "reader_marks",
        "scheduled_messages",
        "snapshots",
        "store_identity",
        "subject_keys",
        "topic_damages",
    ]


@pytest.mark.parametrize("moment", [MOMENT, MOMENT.astimezone(timezone(timedelta(hours=-7))), None])
def test_a_moment_comes_back_in_utc(moment: datetime | None) -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        connection.execute(
            insert(projections).values(
                name="p", generation=1, fingerprint="f", rebuild_started_at=moment
            )
        )
        found = connection.execute(select(projections.c.rebuild_started_at)).scalar_one()
        stored = connection.execute(text("SELECT rebuild_started_at FROM projections")).scalar()
    engine.dispose()
    assert found == moment
    assert found is None or found.tzinfo is UTC
    assert stored == (moment and "2026-01-31 12:00:00.000005")


def test_a_moment_without_zone_is_refused() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        with pytest.raises(StatementError, match="has no time zone"):
            connection.execute(
                insert(projections).values(
                    name="p",
                    generation=1,
                    fingerprint="f",
                    rebuild_started_at=MOMENT.replace(tzinfo=None),
                )
            )
    engine.dispose()
