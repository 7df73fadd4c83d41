from typing import Any

import pytest
from sqlalchemy import Select, create_engine, insert
from sqlalchemy.dialects import postgresql

from headrace.stores.database import queries
from headrace.stores.database.tables import event_streams, metadata, snapshots
from headrace.testing.conformance.streams import stream

ROWS = [("a", 1, "c1"), ("b", 1, "c1"), ("a", None, "no"), ("a", 2, "c2"), ("a", 3, "c3")]


def _run(query: Select[*tuple[Any, ...]]) -> list[Any]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        for aggregate_id, version, command_id in ROWS:
            connection.execute(
                insert(event_streams).values(
                    aggregate_id=aggregate_id,
                    aggregate_type="Notebook",
                    version=version,
                    command_id=command_id,
                    recorded_at=stream("a", 1).recorded_at,
                    body=f"{aggregate_id} {version} {command_id}",
                )
            )
        connection.execute(
            insert(snapshots).values(
                aggregate_id="a", aggregate_type="Notebook", version=3, state_version=1, body="{}"
            )
        )
        found = [
            (row.position, row.body) if "checksum" in row._fields else tuple(row)
            for row in connection.execute(query)
        ]
    engine.dispose()
    return found


def test_a_command_is_found_on_its_aggregate() -> None:
    assert _run(queries.stream_of_command("b", "c1")) == [(2, "b 1 c1")]
    assert _run(queries.stream_of_command("b", "c2")) == []


def test_an_aggregate_is_read_in_version_order_without_rejections() -> None:
    assert _run(queries.streams_of_aggregate("a", 0, None)) == [
        (1, "a 1 c1"),
        (4, "a 2 c2"),
        (5, "a 3 c3"),
    ]
    assert _run(queries.streams_of_aggregate("a", 1, 2)) == [(4, "a 2 c2")]


def test_everything_is_read_in_position_order() -> None:
    assert _run(queries.all_streams(1, 2)) == [(2, "b 1 c1"), (3, "a None no")]
    own = queries.all_streams(1, 2, aggregate_id="a")
    assert _run(own) == [(3, "a None no"), (4, "a 2 c2")]


def test_a_snapshot_is_found_by_its_aggregate() -> None:
    assert _run(queries.snapshot_of_aggregate("a")) == [("a", "Notebook", 3, 1, "{}")]
    assert _run(queries.snapshot_of_aggregate("b")) == []


def test_the_highest_position_is_that_of_the_newest_row() -> None:
    assert _run(queries.highest_position()) == [(5,)]


@pytest.mark.parametrize(
    "query",
    [
        queries.stream_of_command("a", "c"),
        queries.streams_of_aggregate("a", 1, 2),
        queries.all_streams(1, 2),
        queries.highest_position(),
        queries.snapshot_of_aggregate("a"),
    ],
)
def test_every_query_has_a_form_for_postgresql(query: Select[*tuple[Any, ...]]) -> None:
    assert "FROM " in str(query.compile(dialect=postgresql.dialect()))
