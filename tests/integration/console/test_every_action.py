"""Each verb of the console in a real browser: its button, its question, its effect, and the sentence of a refusal."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from headrace_mq import Message
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from tests.integration.console.actions import ACTIONS, GONE, SHOWN, Action
from tests.integration.console.shown import answer, ask, refusal
from tests.integration.console.tea_shop import BROKEN, LAST, NONE, SPILLED, Brew, app, cups
from tests.integration.console.world import PASSWORD, World, a_world, consoled, sign_in

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip(
    "playwright.async_api", reason="playwright is not installed: make install-browser"
)
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make install-browser"),
]
ORIGIN = '{"topic":"orders","queue_id":0,"offset":0,"born_at_ms":1,"attempt":3,"reason":"the till was shut","back_to":"orders"}'


async def fill(world: World) -> None:
    """Orders and their dead letters, and a tea shop that ran: one pot is parked by the projection, one command is."""
    admin, producer = world.admin, world.producer
    for topic in ("orders", "old", "%DLQ%kitchen"):
        await admin.create_topic(topic, 1)
    await producer.send_many([Message(topic="orders", body=b"tea", key="ann")] * 7)
    await producer.send_many([Message(topic="old", body=b"tea")] * 2)
    letter = Message(topic="%DLQ%kitchen", body=b"tea", headers={ORIGIN_HEADER: ORIGIN})
    await producer.send_many([letter] * 5)
    for group in ("kitchen", "cellar"):
        await admin.reset_offsets(group, "earliest", topics=["orders"])
    await admin.freeze("old", (), writing=True, reading=True)
    async with app.run(world.settings) as shop:
        await shop.bus.execute(Brew(pot="green", cups=2), wait_for=[cups])
        await shop.bus.execute(Brew(pot="red", cups=4), command_id="c-red", wait_for=[cups])
        await shop.bus.execute(Brew(pot="red", cups=LAST), wait_for="handled")
        await shop.bus.execute(Brew(pot="blue", cups=SPILLED))
        await shop.bus.execute(Brew(pot="none", cups=NONE))
        await shop.bus.execute(Brew(pot="black", cups=BROKEN))
        async with asyncio.timeout(120):
            while not await shop.projection_letters(cups).all():
                await asyncio.sleep(0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    posted: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        posted.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    receiver = await asyncio.start_server(take, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/"
    async with receiver, a_world(tmp_path_factory.mktemp("shop"), url) as made:
        await fill(made)
        made.posted = posted
        async with consoled(made):
            yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def people(world: World) -> AsyncIterator[Any]:
    """Pages of root, who may do everything, of ann, who may see everything, and of zoe, who may do nothing."""
    async with playwright.async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield SimpleNamespace(
            **{name: await sign_in(browser, world.home, name) for name in ("root", "ann", "zoe")}
        )
        await browser.close()


async def check(people: Any, world: World, action: Action) -> None:
    """A user who may only look is refused, and changes nothing; the administrator does it."""
    before = await action.look(world)
    assert before != action.becomes, action.verb
    await ask(people.ann, world.home, action)
    await answer(people.ann)
    assert action.denied in await refusal(people.ann), action.verb
    assert await action.look(world) == before, action.verb
    await ask(people.root, world.home, action)
    main = await people.root.locator("main").inner_text()
    assert action.asked in main, (action.verb, main)
    assert await action.look(world) == before, action.verb
    await answer(people.root)
    main = await people.root.locator("main").inner_text()
    assert await refusal(people.root) == "", (action.verb, main)
    assert await action.look(world) == action.becomes, (action.verb, main)


async def test_pages_show_their_answer_and_a_user_without_rights_gets_a_sentence(
    people: Any, world: World
) -> None:
    found = {}
    for verb, (path, text) in SHOWN.items():
        shown = await people.root.goto(world.home + path)
        main = await people.root.locator("main").inner_text()
        assert (shown.ok, text in main) == (True, True), (verb, main)
        denied = await people.zoe.goto(world.home + path)
        found[verb] = denied.status, "user 'zoe' may not" in await refusal(people.zoe)
    assert set(found.values()) == {(403, True)}, found


NOUNS = tuple(dict.fromkeys(one.verb.split(" ")[0] for one in ACTIONS))


@pytest.mark.parametrize("noun", NOUNS)
async def test_a_button_asks_before_it_acts_and_refuses_other_users(
    people: Any, world: World, noun: str
) -> None:
    for action in ACTIONS:
        if action.verb.split(" ")[0] == noun:
            await check(people, world, action)


async def test_a_thing_that_is_gone_when_the_question_is_answered_is_a_sentence(
    people: Any, world: World
) -> None:
    admin = world.admin
    await admin.create_topic("menu", 5)
    await admin.reset_offsets("cellar", "earliest", topics=["orders"])
    await admin.add_user("bob", SecretStr(PASSWORD), roles=["cooks"])
    await admin.set_rule("role:cooks", "publish", "topic:orders", allows=True)
    world.folder.silence(
        "HeadraceDamage", for_s=60, why="a new disk", by="root", now_s=time.time(), labels={}
    )
    found = {}
    for action, meanwhile, _ in GONE:
        await ask(people.root, world.home, action)
        await meanwhile(world)
        await answer(people.root)
        found[action.verb] = await refusal(people.root)
    for action, _, sentence in GONE:
        assert sentence in found[action.verb], found


async def test_a_broker_that_cannot_take_over_is_a_sentence(people: Any, world: World) -> None:
    await people.root.goto(f"{world.home}/cluster")
    await people.root.get_by_role("button", name="Let it lead …").click()
    await people.root.get_by_text("a:1 stops to lead, and b:2 leads in its place.").wait_for()
    await answer(people.root)
    assert "record" in await refusal(people.root)
