"""
The verbs about an application's commands: which are in flight, what became of one, and the newest results.

    command list      what waits in each queue, who has it, and what is parked
    command show      the result of one by its id: status, reason, version, events
    command results   the newest results, a page at a time, with counts of statuses and errors

They only read. Used by `application`; they ask as `headrace command` does. What events hold and errors say is for those who
may consume the application's events; personal values are masked.
"""

from collections.abc import Sequence
from typing import Any, Final

from headrace.app import App
from headrace.console.content import HIDDEN_WORDS, content_need
from headrace.console.verbs.aggregate import bare_fields, stored_fields
from headrace.console.verbs.topic import PAGE_ROWS
from headrace.console.verbs.verb import Given, Verb, VerbField
from headrace.figures.records import ROWS_MAX
from headrace.journey.command_result import (
    command_found,
    newest_results,
    plain_result,
    result_row,
)
from headrace.journey.in_flight import commands_in_flight
from headrace.settings import Settings
from headrace.stores.base import StoredStream
from headrace.stores.database.schema import check
from headrace_mq.admin.client import AdminClient

__all__ = ["CommandVerbs"]

_PAGE: Final = (VerbField("page", "number", 1), VerbField("rows", "number", PAGE_ROWS))


class CommandVerbs:
    """What can be asked of the commands of an application.

    Args:
        app: the application.
        settings: name its databases.
    """

    def __init__(self, app: App, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    @property
    def verbs(self) -> Sequence[Verb]:
        """All of them."""
        return (
            Verb("command list", self._list, _PAGE),
            Verb("command show", self._show, (VerbField("id"), VerbField("aggregate", default=""))),
            Verb(
                "command results",
                self._results,
                (VerbField("before", "number", None), VerbField("rows", "number", PAGE_ROWS)),
            ),
        )

    async def _list(self, admin: AdminClient, given: Given) -> Any:
        await self._check(admin)
        return await commands_in_flight(
            admin, self._app, self._settings, page=given["page"], rows=given["rows"]
        )

    async def _show(self, admin: AdminClient, given: Given) -> Any:
        await self._check(admin)
        found = await command_found(
            admin, self._app, self._settings, given["id"], given["aggregate"]
        )
        told: dict[str, Any] = {"events": [], "messages": [], "hidden": ""}
        if found.stream is not None:
            told |= stored_fields(StoredStream(position=0, stream=found.stream))
        result = plain_result(found)
        if need := await content_need(admin, self._app.name):
            told = dict(bare_fields(told)) if found.stream is not None else told
            told["hidden"] = need
            result |= {"sentence": f"{HIDDEN_WORDS}: {need}" if result["sentence"] else ""}
        names = ("events", "messages", "hidden")
        return {"result": result, **{name: told[name] for name in names}}

    async def _results(self, admin: AdminClient, given: Given) -> Any:
        await self._check(admin)
        rows = max(1, min(ROWS_MAX, given["rows"]))
        found = await newest_results(self._app, self._settings, before=given["before"], rows=rows)
        need = await content_need(admin, self._app.name)
        shown = [result_row(one) for one in found.page]
        if need:
            shown = [one | {"sentence": HIDDEN_WORDS if one["sentence"] else ""} for one in shown]
        return found.plain | {"results": shown, "hidden": need}

    async def _check(self, admin: AdminClient) -> None:
        await admin.status()  # refused to those who may not read the cluster
        for url in (self._settings.event_store, self._settings.read_models):
            await check(url)
