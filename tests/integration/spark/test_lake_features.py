"""Features as of a time are what a plain loop over earlier events makes, and never see later ones."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.spark.lake.features import features

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APP = "ledger_app:app"


def naive(
    projection: Projection[Any], history: Sequence[Any], key: str, as_of: datetime
) -> dict[str, Any]:
    """Folds, one after the other, the events that were recorded before a time."""
    facts = [fact for one in history if one.version is not None for fact in one.contexts()]
    row = None
    for event, context in facts:
        if context.recorded_at < as_of:
            for rule in projection.rules_for(type(event)):
                if key in rule.keys(event, context):
                    row = rule.next_row(row, event, context, key)
    nothing = {field.name: None for field in projection.shape.fields} | {projection.key: key}
    return nothing if row is None else row.model_dump()


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_features_are_those_of_a_plain_loop_and_stay_so_when_more_happens(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, name: str
) -> None:
    history, later = make_history(6, 5), make_history(6, 3, first=6, seed=9)
    projection = ledger.app.projection(name)
    chance = random.Random(5)
    moments = sorted({one.recorded_at for one in history})
    keys = [f"a{number}" for number in range(7)] + [f"p{number}" for number in range(10)]
    labels = [
        # Right at an event, which is not seen, and around it.
        (key, moment + timedelta(microseconds=chance.choice([-1, 0, 1])))
        for key in keys
        for moment in chance.sample(moments, 3)
    ]
    frame = spark.createDataFrame(labels, "key string, as_of timestamp")

    def found() -> dict[tuple[str, datetime], dict[str, Any]]:
        table = features(spark, APP, name, frame, broker=broker.address).toArrow().to_pylist()
        assert len(table) == len(set(labels))
        return {(row[projection.key], as_of): row for row in table if (as_of := row.pop("as_of"))}

    await publish(history)
    first = found()
    assert first == {
        (key, as_of): naive(projection, history, key, as_of) for key, as_of in set(labels)
    }
    assert any(row != naive(projection, [], *label) for label, row in first.items())
    await publish([*history[2:9], *later])
    assert found() == first


async def test_labels_without_their_columns_are_refused(
    spark: Any, broker: Any, ledger: Any, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([("a", 1)], "key string, at int")
    with pytest.raises(ProjectionError, match="labels need the columns key and as_of, and have"):
        features(spark, APP, "accounts", frame, broker=broker.address)
