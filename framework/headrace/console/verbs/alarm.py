"""
The verbs about alarms: list, silences, silence, unsilence, test; and what the processes tell that the file of alarms names.

    headrace console --alarms alarms.toml   ─▶  alarms list, alarms silence, …   config services

Used by `headrace console` with a file of alarms; reads and changes the folder of the watcher as `headrace alarms` does. Who
may read the cluster at the broker may read this, and who may administer it may change this, because files know no users.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.alarms.calls import BoundedCalls
from headrace.alarms.folder import AlarmFolder
from headrace.alarms.overview import overview, silence_rows
from headrace.alarms.promql.parse import duration_s
from headrace.alarms.receivers import receivers_of
from headrace.alarms.rules.table import rule_of
from headrace.alarms.settings import AlarmSettings
from headrace.alarms.watcher import send_test
from headrace.console.problems import Mistake
from headrace.console.verbs.access import user_of
from headrace.console.verbs.verb import Consequence, Given, Verb, VerbField
from headrace.errors import HeadraceError
from headrace.figures.settings import chosen
from headrace.figures.words import when
from headrace.metrics.services import ProcessAddress, plain_services, services_shown
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import InvalidArgument

__all__ = ["AlarmVerbs"]


class AlarmVerbs:
    """What can be asked of a watcher of alarms, and changed.

    Args:
        settings: where its folder is, and who gets messages.
    """

    def __init__(self, settings: AlarmSettings) -> None:
        self._folder = AlarmFolder(settings.folder)
        self._receivers = receivers_of(settings)
        self._services = [ProcessAddress(*each) for each in settings.services]
        self._calls = BoundedCalls()

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """All of them by their names."""
        name = VerbField("name")
        silence = (name, VerbField("for"), VerbField("why"), VerbField("label", "texts", ()))
        found = (
            Verb("alarms list", self._list),
            Verb("alarms silences", self._silences),
            Verb("alarms silence", self._silence, silence, self._before_silence, _said_silence),
            Verb(
                "alarms unsilence",
                self._unsilence,
                (VerbField("id"),),
                self._before_unsilence,
                lambda given, _: f"silence {given['id']} has ended",
            ),
            Verb("alarms test", self._test, (name,), self._before_test, _said_test),
        )
        return {each.name: each for each in found}

    @property
    def services(self) -> Mapping[str, Verb]:
        """What processes of an application tell, of which the file names the addresses; none, if it names no such process."""
        fields = (
            VerbField("search", default=""),
            VerbField("given", "flag", default=False),
            VerbField("differing", "flag", default=False),
        )
        verb = Verb("config services", self._config, fields)
        return {verb.name: verb} if self._services else {}

    async def _config(self, admin: AdminClient, given: Given) -> Any:
        await admin.status()  # refused to those who may not read the cluster
        found = await services_shown(self._services, self._calls)
        return plain_services(
            chosen(
                found, given=given["given"], differing=given["differing"], search=given["search"]
            )
        )

    async def _list(self, admin: AdminClient, _: Given) -> Any:
        await admin.status()  # refused to those who may not read the cluster
        return await self._at_the_folder(overview, self._folder, time.time())

    async def _silences(self, admin: AdminClient, _: Given) -> Any:
        await admin.status()
        found = await self._at_the_folder(self._folder.silences, time.time())
        return {"silences": silence_rows(found)}

    async def _silence(self, admin: AdminClient, given: Given) -> Any:
        seconds, labels = _seconds(given), _labels(given)
        rule = await self._at_the_folder(rule_of, given["name"])
        only = "".join(f" {name}={value}" for name, value in labels.items())
        await admin.note_change(
            f"alarms silence {rule.name}{only} for {given['for']}: {given['why']}"
        )
        by = user_of(admin) or "console"
        made = await self._at_the_folder(
            lambda: self._folder.silence(
                rule.name,
                for_s=seconds,
                why=given["why"],
                by=by,
                now_s=time.time(),
                labels=labels,
            )
        )
        return silence_rows([made])[0]

    async def _before_silence(self, admin: AdminClient, given: Given) -> Consequence:
        await _require_administrator(admin)
        rule = await self._at_the_folder(rule_of, given["name"])
        until = when(round((time.time() + _seconds(given)) * 1_000))[:16]
        only = " ".join(f"{name}={value}" for name, value in _labels(given).items())
        return Consequence(
            (f"No message is sent about {rule.name}{f' with {only}' if only else ''} until {until} UTC, even if it gets worse.",
             f"Its severity is {rule.severity}: {rule.summary}",
             "Lists still show it, with your reason."),
        )  # fmt: skip

    async def _unsilence(self, admin: AdminClient, given: Given) -> Any:
        found = await self._at_the_folder(self._folder.silences, time.time())
        about = next((one.rule for one in found if one.id == given["id"]), "of no alarm")
        await admin.note_change(f"alarms unsilence {given['id']} {about}")
        ended = await self._at_the_folder(
            lambda: self._folder.unsilence(given["id"], now_s=time.time())
        )
        return silence_rows([ended])[0]

    async def _before_unsilence(self, admin: AdminClient, given: Given) -> Consequence:
        await _require_administrator(admin)
        found = await self._at_the_folder(self._folder.silences, time.time())
        one = next((each for each in found if each.id == given["id"]), None)
        if one is None:
            return Consequence((), hindered="there is no such silence any more")
        return Consequence(
            (f"Messages about {one.rule} are sent again; if it fires, one is sent at once.",
             f"{one.by} asked for silence: {one.why}"),
        )  # fmt: skip

    async def _test(self, admin: AdminClient, given: Given) -> Any:
        rule = await self._at_the_folder(rule_of, given["name"])
        await admin.note_change(f"alarms test {rule.name}")
        answers = await send_test(rule, self._receivers, time.time())
        return {
            "receivers": [{"receiver": name, "sentence": told} for name, told in answers.items()]
        }

    async def _before_test(self, admin: AdminClient, given: Given) -> Consequence:
        await _require_administrator(admin)
        rule = await self._at_the_folder(rule_of, given["name"])
        names = ", ".join(one.name for one in self._receivers)
        return Consequence(
            (f"A message about {rule.name} goes to {names}. It says that it is a test.",),
            hindered="" if names else "the file of alarms names no webhook and no mail",
        )

    async def _at_the_folder(self, action: Any, *arguments: Any) -> Any:
        """Reads or changes files in a thread; a mistake is one of the person who asks."""
        try:
            return await asyncio.to_thread(action, *arguments)
        except HeadraceError as error:
            raise Mistake(str(error)) from error


async def _require_administrator(admin: AdminClient) -> None:
    try:
        await admin.rules()
    except InvalidArgument:
        # Without a login, all who reach the broker may do everything.
        await admin.status()


def _seconds(given: Given) -> float:
    try:
        return duration_s(given["for"])
    except ValueError as error:
        raise Mistake(f"for: {error}") from error


def _labels(given: Given) -> dict[str, str]:
    pairs: Sequence[str] = given["label"]
    labels = dict(each.partition("=")[::2] for each in pairs)
    if not all(map(all, labels.items())):
        raise Mistake("label: write NAME=VALUE, several with commas between")
    return labels


def _said_silence(given: Given, answer: Any) -> str:
    return f"{given['name']} is silent until {when(answer['until_ms'])[:16]} UTC"


def _said_test(_: Given, answer: Any) -> str:
    return "; ".join(
        f"{one['receiver']}: {one['sentence'] or 'has taken it'}" for one in answer["receivers"]
    )
