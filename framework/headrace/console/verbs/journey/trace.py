"""
The verb `message trace`: a message or a command from its sender to the last reader of what it did.

    id            topic:queue:offset of a message
    command       the id of a command, with its aggregate if you know it
    aggregate     with version: what made this version of it

Without an application only a message can be named. Who may read the message may follow it; what an application's databases
tell is for those who may read the cluster, and what its errors say for those who may consume its events. No body is shown.
Used by `catalogue` and `application`.
"""

from typing import Any, Final

from headrace.app import App
from headrace.console.content import HIDDEN_WORDS, content_need
from headrace.console.problems import Mistake
from headrace.console.verbs.verb import Given, Verb, VerbField
from headrace.figures.records import sender_of
from headrace.journey.command_trace import trace_application
from headrace.journey.trace import Trace, TraceTarget, trace_message
from headrace.settings import Settings
from headrace.stores.database.schema import check
from headrace_mq.admin.client import AdminClient

__all__ = ["TRACE", "application_trace"]

_FIELDS: Final = (
    VerbField("id", default=""),
    VerbField("command", default=""),
    VerbField("aggregate", default=""),
    VerbField("version", "number", 0),
)
# Steps and causes whose detail quotes an error.
_SAYS_ERRORS: Final = {
    "rejected", "damaged", "parked", "dead letter", "retried", "failed", "not sent",
}  # fmt: skip


async def _trace(admin: AdminClient, given: Given) -> Any:
    wanted = _wanted(given)
    if not wanted.message_id:
        raise Mistake(
            "this console knows no application, so it can follow a message by its id alone; start it with --app"
        )
    return await _told(admin, await _message(admin, wanted))


async def _message(admin: AdminClient, wanted: TraceTarget) -> Trace:
    try:
        return await trace_message(admin, wanted.message_id)
    except ValueError as error:
        raise Mistake(str(error)) from error


def application_trace(app: App, settings: Settings) -> Verb:
    """Returns the verb of a console that knows an application.

    Args:
        app: the application.
        settings: name its databases.
    """

    async def trace(admin: AdminClient, given: Given) -> Any:
        wanted = _wanted(given)
        await admin.status()  # refused to those who may not read the cluster
        for url in (settings.event_store, settings.read_models):
            await check(url)
        try:
            found = await trace_application(admin, app, settings, wanted)
        except ValueError as error:
            raise Mistake(str(error)) from error
        told = await _told(admin, found)
        need = await content_need(admin, app.name)
        return _without_errors(told, need) if need else told

    return Verb("message trace", trace, _FIELDS)


def _without_errors(told: dict[str, Any], need: str) -> dict[str, Any]:
    """Hides what errors of the application say."""
    for hop in told["hops"]:
        if hop["detail"] and (hop["step"] in _SAYS_ERRORS or hop["cause"] in _SAYS_ERRORS):
            hop["detail"] = f"{HIDDEN_WORDS}: {need}"
    return told | {"hidden": need}


def _wanted(given: Given) -> TraceTarget:
    try:
        return TraceTarget(
            message_id=given["id"],
            command_id=given["command"],
            aggregate_id=given["aggregate"],
            version=max(0, given["version"]),
        )
    except ValueError as error:
        raise Mistake(str(error)) from error


async def _told(admin: AdminClient, found: Trace) -> dict[str, Any]:
    """What was found, with the steps of the message as consumers told them."""
    steps: list[dict[str, Any]] = []
    record = found.record
    if record is not None:
        sender = sender_of(record, await admin.producers([record]))["sender"]
        whom = f"{sender.client_id} at {sender.address}" if sender else ""
        for at_ms, step, detail in (
            (record.born_at_ms, "produced", whom),
            (record.stored_at_ms, "stored", found.message_id),
        ):
            steps.append(
                {"at_ms": at_ms, "step": step, "group": "", "attempt": None, "detail": detail}
            )
    for one in await admin.steps(found.message_id) if found.message_id else ():
        steps.append(
            {
                "at_ms": one.at_ms,
                "step": one.kind,
                "group": one.group,
                "attempt": one.attempt,
                "detail": one.detail,
            }
        )
    return found.plain | {"steps": steps, "kept": record is not None}


TRACE: Final = Verb("message trace", _trace, _FIELDS)
