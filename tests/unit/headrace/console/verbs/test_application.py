"""What an application has parked, on its page and for programs."""

import os
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.console.problems import Mistake
from headrace.console.verbs import application
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.command import CommandAnswer
from headrace.console.verbs.verb import Consequence, values_of
from headrace.errors import HeadraceError, LetterNotFound
from headrace.parked import Parked, ParkedEntry
from headrace.stores.base import LetterState
from headrace.stores.database.schema import upgrade
from headrace_mq.errors import NotPermitted
from headrace_mq.protocol.access import Explanation
from samples.bank import app

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def urls(tmp_path) -> dict[str, str]:
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    return urls


@pytest.fixture
def verbs(urls) -> ApplicationVerbs:
    environment = os.environ | {"HEADRACE_APP": "samples.bank:app"}
    return ApplicationVerbs(app, environment=environment, **urls)


class Refusing:
    """A connection of a user who may not read the cluster."""

    async def status(self) -> None:
        raise NotPermitted("user 'ann' may not read cluster")


async def listed(verbs: ApplicationVerbs, admin: Any, **fields: Any) -> Any:
    verb = verbs.verbs["parked list"]
    return await verb.run(admin, values_of(verb, fields))


async def test_an_application_that_parked_nothing_has_an_empty_page(verbs, admin) -> None:
    found = await listed(verbs, admin)
    assert (found["parked"], found["causes"], found["total"]) == ([], [], 0)


async def test_what_is_parked_is_counted_by_its_cause(verbs, admin, monkeypatch) -> None:
    entry = ParkedEntry(
        processor="projection:balances", aggregate_id="ada", parked_at=SINCE,
        attempts=2, error="KeyError", sentence="no such account",
    )  # fmt: skip

    async def read(self: Parked, **_: Any) -> list[ParkedEntry]:
        return [entry] * 60

    monkeypatch.setattr(Parked, "read", read)
    found = await listed(verbs, admin, page=2)
    assert found["causes"] == [
        {"processor": "projection:balances", "cause": "KeyError", "parked": 60}
    ]
    assert (len(found["parked"]), found["page"], found["pages"]) == (10, 2, 2)
    assert found["parked"][0]["sentence"] == "no such account"


async def test_a_user_who_may_not_read_the_cluster_sees_nothing_parked(verbs) -> None:
    with pytest.raises(NotPermitted):
        await listed(verbs, Refusing())


async def test_a_database_that_is_missing_is_a_sentence(tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/nothing.db"
    with pytest.raises(HeadraceError, match=r"headrace db upgrade|does not exist"):
        await ApplicationVerbs(app, event_store=url, read_models=url).check()


BROKEN = {
    "commands": ParkedEntry(
        processor="commands", aggregate_id="ada", command_id="c-1", name="Deposit", state=LetterState.HOLDING,
        parked_at=SINCE, attempts=1, error="KeyError", sentence="no such account",
    ),
    "held": ParkedEntry(
        processor="commands", aggregate_id="ada", command_id="c-2", name="Deposit", state=LetterState.HELD,
        parked_at=SINCE, attempts=1, sentence="waits",
    ),
    "balances": ParkedEntry(
        processor="projection:balances", aggregate_id="bob", parked_at=SINCE, attempts=2, waiting=4,
        error="KeyError", sentence="no such row",
    ),
    "instances": ParkedEntry(
        processor="instances:transfer", aggregate_id="t-1", parked_at=SINCE, attempts=1, sentence="no",
    ),
}  # fmt: skip


class Noting:
    """A connection of a user, with what was noted in the audit."""

    address = "127.0.0.1:1"

    def __init__(self, *denied: str) -> None:
        self.noted: list[tuple[str, str]] = []
        self.denied = denied

    async def status(self) -> None:
        """Lets it through."""

    async def may(self, _action: str, _resource: str) -> Explanation:
        return Explanation(allowed=True, reason="")

    async def note_change(self, what: str, *, group: str) -> None:
        if group in self.denied:
            raise NotPermitted(f"user 'ann' may not update group:{group}")
        self.noted.append((group, what))


@pytest.fixture
def noting() -> Noting:
    return Noting()


@pytest.fixture
def broken(verbs, monkeypatch) -> ApplicationVerbs:
    """A bank that has parked something of each kind."""

    async def read(self: Parked, **choice: str | None) -> list[ParkedEntry]:
        return [
            one
            for one in BROKEN.values()
            if all(each in {None, getattr(one, name)} for name, each in choice.items())
        ]

    monkeypatch.setattr(Parked, "read", read)
    return verbs


@pytest.fixture
def ran(monkeypatch) -> list[tuple[Any, ...]]:
    """What the command line was asked for, with variables of its process."""
    found: list[tuple[Any, ...]] = []

    async def run_command(words: Any, environment: Any, tell: Any, *, need: str) -> CommandAnswer:
        assert need == ""
        found.append((*words, environment["HEADRACE_APP"], environment["HEADRACE_BROKER"]))
        tell("begun")
        return CommandAnswer(done=False, lines=("1 of 2 parked are done", "bob"))

    monkeypatch.setattr(application, "run_command", run_command)
    return found


async def ahead(verbs: ApplicationVerbs, admin: Any, word: str, **fields: Any) -> Consequence:
    verb = verbs.verbs[f"parked {word}"]
    assert verb.look_ahead is not None
    return await verb.look_ahead(admin, values_of(verb, fields))


async def test_a_retry_says_before_how_many_it_handles(broken, noting) -> None:
    found = await ahead(broken, noting, "retry")
    assert found.sentences[0] == (
        "Parked that are handled again, with the code of now: 3"
        " (1 of commands, 1 of instances:transfer, 1 of projection:balances)."
    )
    assert found.sentences[2].endswith("runs: 5.")
    assert [row[0] for row in found.rows] == ["commands", "projection:balances", "instances:transfer"]  # fmt: skip
    assert found.hindered == ""
    one = await ahead(broken, noting, "retry", processor="commands")
    assert "with the code of now: 1 (1 of commands)" in one.sentences[0]
    assert not any("messages that wait" in each for each in one.sentences)
    assert "fits" in (await ahead(broken, noting, "retry", aggregate="eve")).hindered
    assert "held behind" in (await ahead(broken, noting, "retry", command="c-2")).hindered
    assert noting.noted == []


async def test_a_skip_says_before_what_is_lost_and_takes_exactly_one(broken, noting) -> None:
    command = await ahead(broken, noting, "skip", processor="commands", aggregate="ada")
    assert "Command Deposit c-1 of ada is left out for good" in command.sentences[0]
    assert command.sentences[1] == "Commands that are held behind it and run next: 1."
    held = await ahead(broken, noting, "skip", command="c-2")
    assert "c-2" in held.sentences[0]
    assert held.sentences[1].endswith("next: 0.")
    event = await ahead(broken, noting, "skip", processor="projection:balances")
    assert "of bob" in event.sentences[0]
    assert event.sentences[2].endswith("handled next: 3.")
    assert event.rows == [("projection:balances", "bob", "", 4, "KeyError: no such row")]
    assert "3 that are parked fit" in (await ahead(broken, noting, "skip")).hindered
    assert "fits" in (await ahead(broken, noting, "skip", aggregate="eve")).hindered


async def test_a_retry_is_noted_for_each_group_and_runs_the_command_line(
    broken, noting, ran
) -> None:
    verb = broken.verbs["parked retry"]
    assert verb.slow is not None
    told: list[str] = []
    answer = await verb.slow(noting, values_of(verb, {}), told.append)
    assert noting.noted == [
        ("bank.commands", "parked retry commands"),
        ("bank.process.transfer", "parked retry instances:transfer"),
        ("bank.projection.balances", "parked retry projection:balances"),
    ]
    assert ran == [("parked", "retry", "samples.bank:app", noting.address)]
    assert told == ["begun"]
    assert verb.done({}, answer) == "1 of 2 parked are done\nbob"
    await verb.run(noting, values_of(verb, {"processor": "commands", "aggregate": "ada"}))
    assert ran[1][:4] == ("parked", "retry", "--processor=commands", "--aggregate=ada")
    assert noting.noted[3:] == [("bank.commands", "parked retry commands ada")]
    with pytest.raises(LetterNotFound, match="nothing that is parked fits"):
        await verb.run(noting, values_of(verb, {"aggregate": "--all"}))


async def test_a_skip_names_in_full_what_it_leaves_out(broken, noting, ran) -> None:
    verb = broken.verbs["parked skip"]
    answer = await verb.run(noting, values_of(verb, {"aggregate": "bob"}))
    assert ran[0][:4] == ("parked", "skip", "--processor=projection:balances", "--aggregate=bob")
    assert noting.noted == [("bank.projection.balances", "parked skip projection:balances bob")]
    assert "another one fails" in verb.done({}, answer)
    await verb.run(noting, values_of(verb, {"command": "c-2"}))
    assert ran[1][2:5] == ("--processor=commands", "--aggregate=ada", "--command=c-2")
    assert noting.noted[1:] == [("bank.commands", "parked skip commands ada c-2")]
    with pytest.raises(Mistake, match="one is skipped at a time"):
        await verb.run(noting, values_of(verb, {}))
    with pytest.raises(Mistake, match="processor is commands, projection:NAME"):
        await verb.run(noting, values_of(verb, {"processor": "projection"}))


async def test_a_user_who_may_not_update_a_group_retries_and_skips_nothing(broken, ran) -> None:
    for word, fields in (("retry", {}), ("skip", {"aggregate": "bob"})):
        verb = broken.verbs[f"parked {word}"]
        with pytest.raises(NotPermitted, match=r"update group:bank\.projection\.balances"):
            await verb.run(Noting("bank.projection.balances"), values_of(verb, fields))
    assert ran == []


async def test_a_console_without_the_path_of_its_application_retries_nothing(
    broken, urls, noting
) -> None:
    nameless = ApplicationVerbs(app, **urls)
    verb = nameless.verbs["parked retry"]
    with pytest.raises(Mistake, match="name --app"):
        await verb.run(noting, values_of(verb, {}))


async def test_the_page_of_what_is_parked_asks_before_a_retry_and_does_it(
    broken, admin, console, ran
) -> None:
    browser = await console(admin.address, broken.verbs)
    page = await browser.page("/parked")
    assert page.count('name="aggregate" value="ada"') == 2
    assert page.count("Retry ada of commands") == 1  # the one that is held has none
    asked = await browser.send("parked skip", processor="projection:balances", back="/parked")
    assert "for good" in asked.text
    assert ran == []
    done = await browser.send("parked retry", processor="projection:balances", confirmed="1")
    assert "1 of 2 parked are done" in done.text
    assert [each[:3] for each in ran] == [("parked", "retry", "--processor=projection:balances")]


async def test_a_retry_runs_in_a_process_of_its_own(verbs, noting, monkeypatch) -> None:
    async def read(self: Parked, **_: Any) -> list[ParkedEntry]:
        return [BROKEN["balances"]]

    verb = verbs.verbs["parked retry"]
    monkeypatch.setattr(Parked, "read", read)
    # The process reads the database, where nothing is parked; an aggregate of such a name is no option.
    with pytest.raises(HeadraceError, match="nothing is parked of 'projection:balances', '--json'"):
        await verb.run(noting, values_of(verb, {"processor": "projection:balances", "aggregate": "--json"}))  # fmt: skip
