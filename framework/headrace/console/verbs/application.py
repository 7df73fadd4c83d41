"""
The verbs about an application: its aggregates, its projections, its processes, and what it has parked.

    headrace console --app samples.bank:app   ─▶  aggregate list, projection status, …, parked list, parked retry, parked skip

Used by `headrace console` with an application; reads its databases as `headrace parked list` does. Who may read the
cluster at the broker may read this, too, because databases know no users. A retry and a skip run as the command line's own
process, and are noted before in the broker's audit under the user who asked, who needs `update` of the consumer group.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headrace.app import App
from headrace.console.content import HIDDEN_WORDS, content_need
from headrace.console.problems import Mistake
from headrace.console.verbs.aggregate import AggregateVerbs
from headrace.console.verbs.command import CommandAnswer, environment_of, run_command
from headrace.console.verbs.journey.commands import CommandVerbs
from headrace.console.verbs.journey.trace import application_trace
from headrace.console.verbs.process import ProcessVerbs
from headrace.console.verbs.projection import ProjectionVerbs
from headrace.console.verbs.topic import PAGE_ROWS, paged
from headrace.console.verbs.verb import Consequence, Given, Tell, Verb, VerbField
from headrace.domain.topics import CommandTopics
from headrace.errors import LetterNotFound
from headrace.parked import COMMANDS, KINDS, ParkedEntry, plain_entry
from headrace.projections.definition.projection import projection_group
from headrace.settings import Settings
from headrace.stores.base import LetterState
from headrace.stores.database.schema import check
from headrace_mq.admin.client import AdminClient

__all__ = ["ApplicationVerbs"]

# What one is chosen by; as the options of the command line.
_CHOICE: Final = (
    VerbField("processor", default=""),
    VerbField("aggregate", default=""),
    VerbField("command", default=""),
)
_COLUMNS: Final = ("Processor", "Aggregate", "Command", "Waiting", "Cause")
# Of what is retried, so much is shown before it is done.
_SHOWN_MAX: Final = 50


class ApplicationVerbs:
    """What can be asked of an application.

    Args:
        app: knows its parts by name.
        event_store: the database of its events.
        read_models: the database of its projections.
        environment: variables of a process that rebuilds or retries, HEADRACE_APP among them; None: it is refused.
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
            *CommandVerbs(self._app, self._settings).verbs,
            application_trace(self._app, self._settings),
            Verb("parked list", self._parked, fields),
            Verb("parked retry", self._retry, _CHOICE, self._before_retry, _told, self._retry),
            Verb("parked skip", self._skip, _CHOICE, self._before_skip, _went_on, self._skip),
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
        need = await content_need(admin, self._app.name)
        found = _bare(found) if need else found
        causes = Counter((one.processor, one.error or one.state.value) for one in found)
        shown, place = paged(found, given)
        return {
            "parked": [plain_entry(one) for one in shown],
            "causes": [
                {"processor": processor, "cause": cause, "parked": count}
                for (processor, cause), count in causes.most_common(20)
            ],
            "hidden": need,
            **place,
        }

    async def _retry(self, admin: AdminClient, given: Given, tell: Tell = lambda _: None) -> Any:
        chosen = await self._chosen(admin, given)
        if not chosen:
            raise LetterNotFound(_NOTHING)
        await self._note(admin, "retry", chosen, (given["aggregate"], given["command"]))
        choice = (given["processor"], given["aggregate"], given["command"])
        return await self._command(admin, "retry", choice, tell)

    async def _before_retry(self, admin: AdminClient, given: Given) -> Consequence:
        chosen = await self._chosen(admin, given)
        counts = Counter(one.processor for one in chosen)
        told = [
            f"Parked that are handled again, with the code of now: {len(chosen):,} ({_counted(counts)})."
        ]
        if counts[COMMANDS]:
            told.append(
                "The running application runs commands; those that are held behind them follow by themselves."
            )
        if len(chosen) > counts[COMMANDS]:
            told.append(
                "A process of its own handles the messages that wait, with the code that is installed where the console"
                f" runs: {sum(one.waiting for one in chosen if one.processor != COMMANDS):,}."
            )
        told.append("What fails again stays parked. Nothing is left out.")
        return Consequence(told, _COLUMNS, _rows(chosen[:_SHOWN_MAX]), _why_not_retry(chosen))

    async def _skip(self, admin: AdminClient, given: Given, tell: Tell = lambda _: None) -> Any:
        chosen = await self._chosen(admin, given)
        if len(chosen) != 1:
            raise Mistake(_why_not_skip(chosen))
        (one,) = chosen
        await self._note(admin, "skip", chosen, (one.aggregate_id, one.command_id))
        # Named in full, so that it is no other one that came meanwhile.
        choice = (one.processor, one.aggregate_id, one.command_id)
        return await self._command(admin, "skip", choice, tell)

    async def _before_skip(self, admin: AdminClient, given: Given) -> Consequence:
        chosen = await self._chosen(admin, given)
        if len(chosen) != 1:
            return Consequence((), _COLUMNS, _rows(chosen[:_SHOWN_MAX]), _why_not_skip(chosen))
        (one,) = chosen
        if one.processor == COMMANDS:
            held = await self._held_behind(one)
            told = [
                f"Command {one.name} {one.command_id} of {one.aggregate_id} is left out for good: nothing runs it later.",
                f"Commands that are held behind it and run next: {held:,}.",
            ]
        else:
            told = [
                f"The message of {one.aggregate_id} that failed is left out for good.",
                f"{one.processor} goes on as if it had handled it.",
                f"Messages that wait behind it and are handled next: {one.waiting - 1:,}.",
                "Its event stays in the event store.",
            ]
        return Consequence(
            (*told, "This cannot be undone. If the code can be mended, mend it and retry."),
            _COLUMNS,
            _rows(chosen),
        )

    async def _held_behind(self, entry: ParkedEntry) -> int:
        """How many commands an entry holds up."""
        if entry.state is not LetterState.HOLDING:
            return 0
        async with self._app.parked(self._settings) as parked:
            found = await parked.read(processor=COMMANDS, aggregate_id=entry.aggregate_id)
        return sum(one.state is LetterState.HELD for one in found)

    async def _chosen(self, admin: AdminClient, given: Given) -> list[ParkedEntry]:
        """What the fields choose; of commands that are held only one that is named."""
        await admin.status()
        await self.check()
        processor = given["processor"]
        kind, _, name = processor.partition(":")
        if processor and (kind not in KINDS or (kind == COMMANDS) == bool(name)):
            raise Mistake(
                "processor is commands, projection:NAME, handlers:NAME, process:NAME or instances:NAME,"
                f" not {processor[:80]!r}"
            )
        async with self._app.parked(self._settings) as parked:
            found = await parked.read(
                processor=processor or None,
                aggregate_id=given["aggregate"] or None,
                command_id=given["command"] or None,
            )
        found = _bare(found) if await content_need(admin, self._app.name) else found
        return [one for one in found if given["command"] or one.state is not LetterState.HELD]

    async def _note(
        self, admin: AdminClient, word: str, chosen: Sequence[ParkedEntry], more: Sequence[str]
    ) -> None:
        """Notes a change in the audit; refused to those who may not update a group of what is chosen."""
        groups = {(self._group(one), one.processor) for one in chosen}
        for group, processor in sorted(groups):
            what = " ".join(("parked", word, processor, *(each for each in more if each)))
            await admin.note_change(what, group=group)

    def _group(self, entry: ParkedEntry) -> str:
        """The consumer group that brought what is parked."""
        kind, _, name = entry.processor.partition(":")
        if kind == COMMANDS:
            return CommandTopics(self._app.name, self._app.command_types).of(entry.name)
        if kind == "projection":
            return projection_group(self._app.name, name, self._app.projection(name).version)
        return f"{self._app.name}.{'handlers' if kind == 'handlers' else 'process'}.{name}"

    async def _command(
        self, admin: AdminClient, word: str, choice: Sequence[str], tell: Tell
    ) -> CommandAnswer:
        environment = environment_of(self._environment, self._settings, admin.address)
        # With `=` between, so that a value that begins with a dash is no option.
        options = [
            f"--{field.name}={value}" for field, value in zip(_CHOICE, choice, strict=True) if value
        ]
        need = await content_need(admin, self._app.name)
        return await run_command(["parked", word, *options], environment, tell, need=need)


def _bare(found: Sequence[ParkedEntry]) -> list[ParkedEntry]:
    """Returns what is parked without what errors say: that may quote an event."""
    return [replace(one, sentence=HIDDEN_WORDS, traceback="") for one in found]


_NOTHING: Final = "nothing that is parked fits; the list shows what is"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} of {name}" for name, count in sorted(counts.items())) or "none"


def _why_not_retry(chosen: Sequence[ParkedEntry]) -> str:
    if not chosen:
        return _NOTHING
    if any(one.state is LetterState.HELD for one in chosen):
        return "this command is held behind an earlier one of its aggregate; retry that one"
    return ""


def _why_not_skip(chosen: Sequence[ParkedEntry]) -> str:
    if not chosen:
        return _NOTHING
    return f"{len(chosen):,} that are parked fit, and one is skipped at a time; give processor, aggregate and command"


def _rows(chosen: Sequence[ParkedEntry]) -> list[Sequence[object]]:
    return [
        (
            one.processor,
            one.aggregate_id,
            f"{one.name} {one.command_id}".strip(),
            one.waiting,
            f"{one.error}: {one.sentence}" if one.error else one.sentence,
        )
        for one in chosen
    ]


def _told(_: Given, answer: CommandAnswer) -> str:
    return "\n".join(answer.lines)


def _went_on(given: Given, answer: CommandAnswer) -> str:
    told = _told(given, answer)
    return (
        told
        if answer.done
        else f"The one was left out, but another one fails and is parked:\n{told}"
    )
