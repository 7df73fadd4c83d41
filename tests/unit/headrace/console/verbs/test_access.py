"""Users and rules as the pages and the API change them: each change says first what it does."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from headrace.console.verbs.access import user_of
from headrace.console.verbs.catalogue import VERBS
from headrace.console.verbs.verb import values_of
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.broker.server import Broker
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.errors import InvalidArgument
from headrace_mq.settings import BrokerSettings, StoreSettings


@pytest.fixture
async def root(tmp_path: Path) -> AsyncIterator[AdminClient]:
    """The administrator of a broker with a login."""
    add_user(tmp_path / "data", "root", SecretStr("secret of root"), admin=True)
    file = tmp_path / "root.txt"
    file.write_text("secret of root")
    file.chmod(0o600)
    store = StoreSettings(directory=tmp_path / "data", segment_bytes=1 << 20)
    async with Broker(BrokerSettings(store=store, port=0, login=True)) as broker:
        address = f"tcp://{broker.address}?user=root&password_file={file}"
        async with AdminClient(address) as admin:
            yield admin


@pytest.fixture
def do(root: AdminClient) -> Callable[..., Awaitable[Any]]:
    async def do(name: str, /, **fields: Any) -> Any:
        return await VERBS[name].run(root, values_of(VERBS[name], fields))

    return do


@pytest.fixture
def ahead(root: AdminClient) -> Callable[..., Awaitable[Any]]:
    async def ahead(name: str, /, **fields: Any) -> Any:
        look_ahead = VERBS[name].look_ahead
        assert look_ahead is not None
        return await look_ahead(root, values_of(VERBS[name], fields))

    return ahead


async def names(do: Callable[..., Awaitable[Any]], **fields: Any) -> list[str]:
    return [one.name for one in (await do("user list", **fields))["users"]]


async def test_a_user_is_added_changed_and_removed(do, ahead) -> None:
    told = await ahead("user add", name="ann", roles="clerks")
    assert told.secrets == ("password",)
    assert "and those of clerks" in " ".join(told.sentences)
    await do("user add", name="ann", roles="clerks", password="a long secret")
    assert (await ahead("user add", name="ann")).hindered == "there is a user ann already"
    assert await names(do, search="AN") == ["ann"]
    await do("user roles", name="ann", roles="clerks,cooks")
    assert (
        "become none; they were clerks cooks"
        in (await ahead("user roles", name="ann")).sentences[0]
    )
    assert "connections end at once" in (await ahead("user disable", name="ann")).sentences[0]
    await do("user disable", name="ann")
    assert (await ahead("user disable", name="ann")).hindered == "it is disabled already"
    await do("user enable", name="ann")
    assert (await ahead("user enable", name="ann")).hindered == "it is not disabled"
    await do("acl allow", user="ann", action="read", resource="topic:*")
    told = await ahead("user remove", name="ann")
    assert "with 1 rules of its own" in told.sentences[0]
    assert told.rows == [("allow", "ann", "read", "topic:*")]
    await do("user remove", name="ann")
    assert await names(do) == ["root"]


async def test_a_user_needs_a_password_or_a_certificate(do, ahead) -> None:
    with pytest.raises(ValueError, match="password is missing"):
        await do("user add", name="ann")
    with pytest.raises(ValueError, match="leave one of them out"):
        await do("user add", name="ann", certificate="1", password="x")
    told = await ahead("user add", name="CN=reports", certificate="1", admin="1")
    assert (told.secrets, "no rule limits it" in " ".join(told.sentences)) == ((), True)
    await do("user add", name="CN=reports", certificate="1")
    assert "CN=reports" in await names(do)


async def test_a_person_is_warned_before_shutting_itself_out(root, ahead) -> None:
    assert user_of(root) == "root"
    for verb in ("user disable", "user remove"):
        assert "That is you" in " ".join((await ahead(verb, name="root")).sentences)


async def test_a_user_that_does_not_exist_is_a_sentence(ahead) -> None:
    with pytest.raises(InvalidArgument, match="there is no user eve"):
        await ahead("user disable", name="eve")


async def test_a_rule_is_set_explained_and_taken_away(do, ahead) -> None:
    await do("user add", name="ann", password="a long secret")
    rule = {"user": "ann", "action": "publish", "resource": "topic:orders"}
    assert (await do("acl explain", **rule))["allowed"] is False
    assert "ann may publish topic:orders" in (await ahead("acl allow", **rule)).sentences[0]
    await do("acl allow", **rule)
    found = await do("acl explain", **rule)
    assert (found["allowed"], bool(found["reason"])) == (True, True)
    assert (
        "ann may not do anything to topic:orders"
        in (await ahead("acl deny", **rule | {"action": "*"})).sentences[0]
    )
    await do("acl deny", **rule | {"action": "*"})
    assert (await do("acl explain", **rule))["allowed"] is False
    assert (await do("acl list", user="ann"))["total"] == 2
    assert (await ahead("acl remove", **rule)).rows == [("allow", "ann", "publish", "topic:orders")]
    await do("acl remove", **rule)
    assert "there is no such rule" in (await ahead("acl remove", **rule)).hindered
    assert "no longer denied" in (await ahead("acl remove", **rule | {"action": "*"})).sentences[0]


async def test_producers_are_listed_with_their_user(root, do) -> None:
    async with Producer(root.address) as producer:
        await producer.send(Message(topic="orders", body=b"x"))
        (one,) = (await do("producer list"))["producers"]
    assert (one.user, one.produced) == ("root", 1)
