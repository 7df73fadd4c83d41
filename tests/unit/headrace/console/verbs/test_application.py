"""What an application has parked, on its page and for programs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.verb import values_of
from headrace.errors import HeadraceError
from headrace.stores.database.schema import upgrade
from headrace_mq.errors import NotPermitted
from samples.bank import app


@pytest.fixture
async def verbs(tmp_path) -> ApplicationVerbs:
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    return ApplicationVerbs(app, **urls)


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
    from headrace.parked import Parked, ParkedEntry

    entry = ParkedEntry(
        processor="projection:balances", aggregate_id="ada", parked_at=datetime(2026, 1, 1, tzinfo=UTC),
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
