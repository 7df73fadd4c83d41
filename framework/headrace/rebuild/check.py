"""
Live rows compared with what the stored events make, and nothing that anybody reads touched.

    rebuilt next to the live table, by either engine ─▶ compared at the same offsets ─▶ dropped

Used by the command line; uses rebuilds that do not switch. It must not know Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from headrace.app import load_app
from headrace.rebuild.local.rebuild import rebuild_together
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.shadow import open_read_models

__all__ = ["check", "drop_built"]


async def check(
    app: str,
    projection_names: Sequence[str],
    *,
    read_models_url: str,
    against: Literal["store", "topic"] = "store",
    **choices: Any,
) -> dict[str, RebuildReport | Exception]:
    """Rebuilds projections in one pass, compares each with the live one, and drops it again.

    Args:
        app: the application's import path.
        projection_names: which of its projections.
        read_models_url: where the projections' tables are.
        against: the event store, the truth, up to the versions that the live rows have; or the event
            topic, up to their offsets.
        choices: as `Choices` tells them, without `source`, `verify` and `switch`.

    Returns:
        By name, in the order asked for: what was found, or what `rebuild` would have raised.
        `compared` is None where the two could not be compared; `reason` says why.

    Raises:
        ProjectionNotFound: the application has no projection of a name; nothing was begun.
    """
    outcomes = await rebuild_together(
        app,
        projection_names,
        read_models_url=read_models_url,
        source=against,
        switch=False,
        **choices,
    )
    return await drop_built(app, outcomes, read_models_url=read_models_url)


async def drop_built(
    app: str, outcomes: Mapping[str, RebuildReport | Exception], *, read_models_url: str
) -> dict[str, RebuildReport | Exception]:
    """Drops what rebuilds that did not switch have built, and returns what they found."""
    application = load_app(app)
    found: dict[str, RebuildReport | Exception] = {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, Exception):
            found[name] = outcome
            continue
        projection = application.projection(name)
        async with open_read_models(read_models_url, projection) as read_models:
            await read_models.drop_generation(name, outcome.generation)
        # Where the rebuilt rows are kept is no longer true.
        found[name] = replace(outcome, reason=outcome.reason.partition("; not switched")[0])
    return found
