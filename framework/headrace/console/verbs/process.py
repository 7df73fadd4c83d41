"""
The verbs about an application's processes: list, show, prune.

    process list    instances by process and key, a page at a time; those that stand still, with the reason
    process show    one: its state, its steps, what is pending, and where its handler failed
    process prune   deletes instances that ended before a moment

A change is noted in the broker's audit before it is done, under the user who asked, who needs `update` of the process's
consumer group. Used by `application`.
"""

import dataclasses
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from headrace.app import App
from headrace.console.content import HIDDEN_WORDS, content_need
from headrace.console.verbs.topic import PAGE_ROWS
from headrace.console.verbs.verb import Consequence, Given, Verb, VerbField
from headrace.processes.overview import Processes, ProcessInstance
from headrace.processes.process import Process
from headrace.processes.pruned import PRUNED_MAX, count_ended, prune
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.schema import check
from headrace.subjects.hidden import HIDDEN
from headrace.subjects.personal import personal_fields
from headrace_mq.admin.client import AdminClient

__all__ = ["ProcessVerbs"]

# Most rows of a page.
_ROWS_MAX: Final = 500
_NAME: Final = VerbField("name")


class ProcessVerbs:
    """What can be asked of the processes of an application, and done with them.

    Args:
        app: has them.
        read_models: the database of their instances.
    """

    def __init__(self, app: App, read_models: str) -> None:
        self._app = app
        self._url = read_models

    @property
    def verbs(self) -> Sequence[Verb]:
        """All of them."""
        return (
            Verb(
                "process list",
                self._list,
                (
                    VerbField("name", default=""),
                    VerbField("stuck", "flag", default=False),
                    VerbField("ended", "flag", default=False),
                    VerbField("after_name", default=""),
                    VerbField("after_key", default=""),
                    VerbField("rows", "number", PAGE_ROWS),
                ),
            ),
            Verb("process show", self._show, (_NAME, VerbField("key"), VerbField("step", "number", 0))),
            Verb(
                "process prune",
                self._prune,
                (_NAME, VerbField("before", "time")),
                self._before_prune,
                lambda given, answer: f"{answer:,} ended instances of {given['name']} were deleted",
            ),
        )  # fmt: skip

    async def _list(self, admin: AdminClient, given: Given) -> Any:
        await admin.status()  # refused to those who may not read the cluster
        need = await content_need(admin, self._app.name)
        rows = max(1, min(_ROWS_MAX, given["rows"]))
        after = (given["after_name"], given["after_key"]) if given["after_name"] else None
        async with self._models() as models:
            processes = Processes(models)
            counts = await processes.counts()
            found = await processes.all(
                given["name"] or None,
                stuck=given["stuck"],
                ended=given["ended"],
                after=after,
                limit=rows + 1,
            )
        last = found[rows - 1] if len(found) > rows else None
        return {
            "counts": [dataclasses.asdict(one) for one in counts],
            "instances": [self._plain(one, need) for one in found[:rows]],
            "next": last and {"name": last.process, "key": last.key},
        }

    async def _show(self, admin: AdminClient, given: Given) -> Any:
        await admin.status()
        need = await content_need(admin, self._app.name)
        async with self._models() as models:
            processes = Processes(models)
            found = await processes.get(given["name"], given["key"])
            steps = await processes.steps(
                given["name"], given["key"], after=max(0, given["step"]), limit=PAGE_ROWS + 1
            )
        return {
            "instance": self._plain(found, need),
            "steps": [dataclasses.asdict(one) for one in steps[:PAGE_ROWS]],
            "next": steps[PAGE_ROWS - 1].number if len(steps) > PAGE_ROWS else None,
        }

    async def _prune(self, admin: AdminClient, given: Given) -> int:
        await admin.status()
        name = self._process(given).name
        await admin.note_change(
            f"process prune {name} before {_moment(given):%Y-%m-%dT%H:%M:%SZ}",
            group=f"{self._app.name}.process.{name}",
        )
        pruned, last = 0, PRUNED_MAX
        async with self._models() as models:
            while last == PRUNED_MAX:
                last = await models.transact(partial(prune, process=name, before=_moment(given)))
                pruned += last
        return pruned

    async def _before_prune(self, admin: AdminClient, given: Given) -> Consequence:
        await admin.status()
        name = self._process(given).name
        async with self._models() as models:
            count = await models.transact(partial(count_ended, process=name, before=_moment(given)))
        return Consequence(
            (
                f"{count:,} instances of {name} that ended before {_moment(given):%Y-%m-%d %H:%M:%S} UTC are deleted.",
                "Their steps and commands are deleted with them.",
                "An event that comes again has no effect even then; instances that run stay.",
            ),
            hindered="" if count else "there is no such instance",
        )  # fmt: skip

    def _process(self, given: Given) -> Process[Any]:
        return self._app.process(given["name"])

    def _plain(self, instance: ProcessInstance, need: str) -> Any:
        found = json.loads(json.dumps(dataclasses.asdict(instance), default=datetime.isoformat))
        if need:
            stuck = [one | {"sentence": HIDDEN_WORDS, "traceback": ""} for one in found["stuck"]]
            return found | {"state": None, "stuck": stuck, "hidden": need}
        found["hidden"] = ""
        if self._has_personal_events(instance.process):
            found["state"] = _without_texts(found["state"])
        return found

    def _has_personal_events(self, name: str) -> bool:
        """Whether a process may have put personal values into its states; one that is unknown may have."""
        for each in self._app.definition.managers:
            if each.name == name:
                return any(
                    personal_fields(event)
                    for kind in each.event_types
                    for event in self._app.definition.events
                    if issubclass(event, kind)
                )
        return True

    @asynccontextmanager
    async def _models(self) -> AsyncIterator[ReadModels]:
        """The read models that are there."""
        await check(self._url)
        models = ReadModels(self._url)
        try:
            yield models
        finally:
            await models.aclose()


def _moment(given: Given) -> datetime:
    return datetime.fromtimestamp(given["before"] / 1_000, UTC)


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_texts(each) for each in value]
    return HIDDEN if isinstance(value, str) and value else value
