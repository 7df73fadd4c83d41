"""
The verbs about an application's projections: list, status, pause, resume, verify, rebuild, switch, rollback, drop.

    what is quick     is done here, in one transaction of the database of read models
    what takes long   is the command line's own process, which says how far it is

Each change is noted in the broker's audit before it is done, under the user who asked, who needs to read the cluster and
`update` of the projection's consumer group: databases know no users. Values of rows are left out of reports. Used by
`application`.
"""

import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from headrace.app import App
from headrace.console.content import content_need
from headrace.console.verbs.command import CommandAnswer, environment_of, run_command
from headrace.console.verbs.verb import Consequence, Given, Tell, Verb, VerbField
from headrace.errors import ProjectionNotFound
from headrace.projections.definition.projection import Projection, projection_group
from headrace.projections.tables.generation_tables import find_all
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.succession import ahead_of
from headrace.rebuild.local.forecast import Forecast, forecast
from headrace.rebuild.source import Source, open_events
from headrace.settings import Settings
from headrace.stores.database.schema import check
from headrace.transports.open import open_transport
from headrace.watch.lag import Lags, ProjectionLag
from headrace.watch.overview import projection_rows
from headrace_mq.admin.client import AdminClient

__all__ = ["ProjectionVerbs"]

_NAME: Final = VerbField("name")
# How long the broker may take until lags are given up.
_WITHIN_MS: Final = 5_000
# How a report begins a line that names a row and its values.
_ROW: Final = "    "
_ROLLBACK: Final = "`projection rollback` puts the table from before back in place."


class ProjectionVerbs:
    """What can be asked of the projections of an application, and done with them.

    Args:
        app: has them.
        settings: name the databases.
        environment: variables of a process that rebuilds, the application's path among them; None: rebuilds are refused.
    """

    def __init__(self, app: App, settings: Settings, environment: Mapping[str, str] | None) -> None:
        self._app = app
        self._settings = settings
        self._environment = environment

    @property
    def verbs(self) -> Sequence[Verb]:
        """All of them."""
        source = VerbField("from", default="zero", choices=("zero", "store"))
        return (
            Verb("projection list", self._list),
            Verb("projection status", self._status, (_NAME,)),
            Verb("projection pause", self._pause, (_NAME,), self._before_pause, _said("is paused")),
            Verb("projection resume", self._resume, (_NAME,), self._before_resume, _said("goes on")),
            Verb(
                "projection verify", self._verify, (_NAME,), self._before_verify, _told, self._verify
            ),
            Verb(
                "projection rebuild",
                self._rebuild,
                (
                    _NAME,
                    source,
                    VerbField("engine", default="replay", choices=("replay", "spark")),
                    VerbField("switch", "flag", default=True),
                    VerbField("accept_differences", "flag", default=False),
                ),
                self._before_rebuild,
                _told,
                self._rebuild,
            ),
            Verb(
                "projection switch", self._switch, (_NAME,), self._before_switch, _told, self._switch
            ),
            Verb("projection rollback", self._rollback, (_NAME,), self._before_rollback, _gone_back),
            Verb(
                "projection drop",
                self._drop,
                (_NAME, VerbField("generation", "number")),
                self._before_drop,
                lambda given, _: f"generation {given['generation']} of projection {given['name']} is gone",
            ),
        )  # fmt: skip

    async def _list(self, admin: AdminClient, _: Given) -> Any:
        await admin.status()  # refused to those who may not read the cluster
        async with self._models() as models:
            made = {
                name: one
                for name, one in self._app.projections.items()
                if await models.is_set_up(one)
            }
            rows = await projection_rows(made, models)
            lags = {}
            if made:
                found = await self._lags(admin, models, *made.values())
                lags = {one.projection: one for one in found}
        return {
            "projections": [row | _behind(lags[row["projection"]]) for row in rows],
            "without_tables": sorted(self._app.projections.keys() - made.keys()),
        }

    async def _status(self, admin: AdminClient, given: Given) -> Any:
        await admin.status()
        async with self._models() as models:
            projection = await self._made(models, given)
            (row,) = await projection_rows({projection.name: projection}, models)
            (lag,) = await self._lags(admin, models, projection)
            state = await models.state(projection.name)
        plain = json.loads(json.dumps(dataclasses.asdict(lag), default=datetime.isoformat))
        return {
            "projection": row | _behind(lag),
            "lag": plain,
            "previous": state.previous_generation,
            "rebuild_generation": state.rebuild_generation,
            "rebuild_since": state.rebuild_started_at and state.rebuild_started_at.isoformat(),
        }

    async def _lags(
        self, admin: AdminClient, models: ReadModels, *wanted: Projection[Any]
    ) -> list[ProjectionLag]:
        projections = {each.name: each for each in wanted} or dict(self._app.projections)
        async with open_transport(admin.address, within_ms=_WITHIN_MS) as transport:
            return await Lags(
                app_name=self._app.name,
                projections=projections,
                read_models=models,
                transport=transport,
            ).measure()

    async def _pause(self, admin: AdminClient, given: Given) -> Any:
        return await self._quickly(admin, "pause", given, lambda models, name: models.pause(name))

    async def _resume(self, admin: AdminClient, given: Given) -> Any:
        return await self._quickly(admin, "resume", given, lambda models, name: models.resume(name))

    async def _before_pause(self, admin: AdminClient, given: Given) -> Consequence:
        paused = await self._paused(admin, given)
        return Consequence(
            (
                f"Nothing more is applied to projection {given['name']}: its rows stay as they are, and its lag grows.",
                "It holds across restarts, until `projection resume`.",
            ),
            hindered="it is paused already" if paused else "",
        )

    async def _before_resume(self, admin: AdminClient, given: Given) -> Consequence:
        paused = await self._paused(admin, given)
        return Consequence(
            (f"Projection {given['name']} goes on where it stopped, and catches up.",),
            hindered="" if paused else "it is not paused",
        )

    async def _paused(self, admin: AdminClient, given: Given) -> bool:
        await admin.status()
        async with self._models() as models:
            projection = await self._made(models, given)
            return (await models.state(projection.name)).paused_at is not None

    async def _verify(self, admin: AdminClient, given: Given, tell: Tell = lambda _: None) -> Any:
        await self._note(admin, "verify", given)
        return await self._command(admin, ["verify", given["name"], "--engine", "replay"], tell)

    async def _before_verify(self, admin: AdminClient, given: Given) -> Consequence:
        rows = await self._rows(admin, given)
        return Consequence(
            (
                f"The {rows:,} live rows of {given['name']} are compared with what the event store makes of its events.",
                "The rows are built again next to the live ones, and dropped afterwards; the live rows stay as they are.",
                "It takes the disk and one processor for as long as a rebuild does.",
                "The report counts what differs; `headrace projection verify` on the command line shows the values.",
            )
        )  # fmt: skip

    async def _rebuild(self, admin: AdminClient, given: Given, tell: Tell = lambda _: None) -> Any:
        await self._note(admin, "rebuild", given)
        words = ["rebuild", given["name"], "--engine", given["engine"], "--from", given["from"]]
        words += [] if given["switch"] else ["--no-switch"]
        words += ["--accept-differences"] if given["accept_differences"] else []
        return await self._command(admin, words, tell)

    async def _before_rebuild(self, admin: AdminClient, given: Given) -> Consequence:
        await admin.status()
        found = await self._forecast(admin, given)
        messages = sum(found.messages.values())
        told = [
            f"{messages:,} messages of about {found.bytes:,} bytes are folded again.",
            f"That takes about {found.seconds:,.1f} s, and the time to write the rows.",
            f"Live is generation {found.generation} with {found.rows:,} rows; it stays live meanwhile.",
        ]
        if given["engine"] == "spark":
            told[1] = (
                "Spark starts in some seconds, and folds them with all processors of the console's machine."
            )
        if not given["switch"]:
            told.append(
                "The new rows are kept next to them; `projection switch` puts them in place."
            )
        elif given["accept_differences"]:
            told.append(f"The new rows go live however many of them differ. {_ROLLBACK}")
        elif found.comparable:
            told.append(
                f"The new rows are compared with them, and go live if none differs. {_ROLLBACK}"
            )
        else:
            told.append(
                f"The columns have changed, so nothing is compared, and the new rows go live. {_ROLLBACK}"
            )
        return Consequence(
            told,
            ("queue", "messages"),
            list(found.messages.items()),
            hindered=found.running,
        )  # fmt: skip

    async def _forecast(self, admin: AdminClient, given: Given) -> Forecast:
        source: Source = "store" if given["from"] == "store" else "topic"
        urls = (admin.address, self._settings.event_store)
        events = open_events(
            self._app, source, urls, switch=False, live_wait_ms=0, messages_max=1_000
        )
        async with events as found, self._models() as models:
            projection = await self._made(models, given)
            return await forecast(self._app, projection, found, models)

    async def _switch(self, admin: AdminClient, given: Given, tell: Tell = lambda _: None) -> Any:
        await self._note(admin, "switch", given)
        return await self._command(admin, ["switch", given["name"]], tell)

    async def _before_switch(self, admin: AdminClient, given: Given) -> Consequence:
        rows = await self._rows(admin, given)
        return Consequence(
            (
                f"The table of {given['name']} that a rebuild has kept catches up and goes live in place of {rows:,} rows.",
                "It goes live however many rows differ, and services with another version of the definition wait.",
                _ROLLBACK,
            )
        )  # fmt: skip

    async def _rollback(self, admin: AdminClient, given: Given) -> Any:
        projection = self._app.projection(given["name"])
        await self._note(admin, "rollback", given)
        async with self._models() as models:
            before = await models.generation(projection.name)
            generation = await models.rollback(projection)
            async with models.snapshot() as connection:
                ahead = await ahead_of(connection, projection.name, before, generation)
        return {"generation": generation, "behind": sum(ahead.values())}

    async def _before_rollback(self, admin: AdminClient, given: Given) -> Consequence:
        await admin.status()
        name = self._app.projection(given["name"]).name
        async with self._models() as models:
            state = await models.state(name)
            previous = state.previous_generation
            if previous is None:
                return Consequence((), hindered="it has no table from before the last switch")
            async with models.snapshot() as connection:
                ahead = await ahead_of(connection, name, state.generation, previous)
        return Consequence(
            (
                f"Generation {previous} goes live again in place of generation {state.generation}.",
                f"It is {sum(ahead.values()):,} messages behind; services with this code catch up.",
            )
        )

    async def _drop(self, admin: AdminClient, given: Given) -> Any:
        name = self._app.projection(given["name"]).name
        await self._note(admin, "drop", given, f" {given['generation']}")
        async with self._models() as models:
            await models.drop_generation(name, given["generation"])

    async def _before_drop(self, admin: AdminClient, given: Given) -> Consequence:
        await admin.status()
        name, generation = self._app.projection(given["name"]).name, given["generation"]
        async with self._models() as models:
            state = await models.state(name)
            async with models.snapshot() as connection:
                there = await find_all(connection, name)
        hindered = ""
        if generation not in there:
            hindered = f"it has the generations {', '.join(map(str, there))}"
        elif generation == state.generation:
            hindered = "this generation is live"
        return Consequence(
            (
                f"The table of generation {generation} of projection {name} is dropped with its rows.",
                "They can be built again from the events.",
                *(["`projection rollback` is not possible then."] if generation == state.previous_generation else []),
            ),
            hindered=hindered,
        )  # fmt: skip

    async def _rows(self, admin: AdminClient, given: Given) -> int:
        await admin.status()
        async with self._models() as models:
            return await models.reader(await self._made(models, given)).count()

    async def _made(self, models: ReadModels, given: Given) -> Projection[Any]:
        """The projection; a page makes no tables, as its user may be one who only reads."""
        projection = self._app.projection(given["name"])
        if not await models.is_set_up(projection):
            raise ProjectionNotFound(
                f"projection {projection.name} has no tables yet; run the application once, it makes them"
            )
        return projection

    async def _quickly(
        self,
        admin: AdminClient,
        word: str,
        given: Given,
        work: Callable[[ReadModels, str], Awaitable[None]],
    ) -> None:
        await self._note(admin, word, given)
        async with self._models() as models:
            await work(models, (await self._made(models, given)).name)

    async def _note(self, admin: AdminClient, word: str, given: Given, more: str = "") -> None:
        """Notes a change in the audit; refused to those who may not read the cluster or update the projection's group."""
        await admin.status()
        projection = self._app.projection(given["name"])
        group = projection_group(self._app.name, projection.name, projection.version)
        await admin.note_change(f"projection {word} {projection.name}{more}", group=group)

    async def _command(self, admin: AdminClient, words: Sequence[str], tell: Tell) -> CommandAnswer:
        environment = environment_of(self._environment, self._settings, admin.address)
        need = await content_need(admin, self._app.name)
        return await run_command(
            ["projection", *words], environment, tell, keeps=_without_values, need=need
        )

    @asynccontextmanager
    async def _models(self) -> AsyncIterator[ReadModels]:
        """The read models that are there."""
        await check(self._settings.read_models)
        models = ReadModels(self._settings.read_models)
        try:
            yield models
        finally:
            await models.aclose()


def _behind(lag: ProjectionLag) -> dict[str, Any]:
    return {
        "messages": lag.messages,
        "age_ms": lag.age_ms,
        "paused": lag.paused_at is not None,
        "group_paused": lag.group_paused,
        "obstacle": lag.elsewhere or lag.obstacle,
    }


def _said(what: str) -> Callable[[Given, Any], str]:
    return lambda given, _: f"projection {given['name']} {what}"


def _gone_back(given: Given, answer: Any) -> str:
    return (
        f"projection {given['name']} is back at generation {answer['generation']},"
        f" {answer['behind']:,} messages behind the rows from before"
    )


def _told(_: Given, answer: CommandAnswer) -> str:
    return "\n".join(answer.lines)


def _without_values(line: str) -> bool:
    """Whether a line of a report has no values of rows: the report names rows below their column."""
    return not line.startswith(_ROW)
