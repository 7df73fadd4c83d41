"""
The verbs about an application: its aggregates, its projections, its processes, and what it has parked.

    headrace console --app samples.bank:app   ─▶  aggregate list, projection status, …, parked list

Used by `headrace console` with an application; reads its databases as `headrace parked list` does. Who may read the
cluster at the broker may read this, too, because databases know no users.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.app import App
from headrace.console.verbs.aggregate import AggregateVerbs
from headrace.console.verbs.process import ProcessVerbs
from headrace.console.verbs.projection import ProjectionVerbs
from headrace.console.verbs.topic import PAGE_ROWS, paged
from headrace.console.verbs.verb import Given, Verb, VerbField
from headrace.parked import plain_entry
from headrace.settings import Settings
from headrace.stores.database.schema import check
from headrace_mq.admin.client import AdminClient

__all__ = ["ApplicationVerbs"]


class ApplicationVerbs:
    """What can be asked of an application.

    Args:
        app: knows its parts by name.
        event_store: the database of its events.
        read_models: the database of its projections.
        environment: variables of a process that rebuilds, HEADRACE_APP among them; None: rebuilds are refused.
    """

    def __init__(
        self,
        app: App,
        *,
        event_store: str,
        read_models: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._app = app
        self._environment = environment
        self._settings = Settings(event_store=event_store, read_models=read_models)

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """All of them by their names."""
        fields = (
            VerbField("processor", default=""),
            VerbField("page", "number", 1),
            VerbField("rows", "number", PAGE_ROWS),
        )
        found = (
            *AggregateVerbs(self._app, self._settings.event_store).verbs,
            *ProjectionVerbs(self._app, self._settings, self._environment).verbs,
            *ProcessVerbs(self._app, self._settings.read_models).verbs,
            Verb("parked list", self._parked, fields),
        )
        return {each.name: each for each in found}

    async def check(self) -> None:
        """Refuses databases that cannot be read.

        Raises:
            SchemaOutOfDate: there is no database, or its schema is not this version's.
            DefinitionError: a URL is not one of SQLite or PostgreSQL.
        """
        await check(self._settings.event_store)
        await check(self._settings.read_models)

    async def _parked(self, admin: AdminClient, given: Given) -> Any:
        await admin.status()  # refused to those who may not read the cluster
        await self.check()
        async with self._app.parked(self._settings) as parked:
            found = await parked.read(processor=given["processor"] or None)
        causes = Counter((one.processor, one.error or one.state.value) for one in found)
        shown, place = paged(found, given)
        return {
            "parked": [plain_entry(one) for one in shown],
            "causes": [
                {"processor": processor, "cause": cause, "parked": count}
                for (processor, cause), count in causes.most_common(20)
            ],
            **place,
        }
