"""What a page shows, as a browser renders it, the same of its JSON, and the questions before a change."""

from collections.abc import Mapping
from typing import Any

from tests.integration.console.actions import Action
from tests.integration.console.world import PASSWORD, World

_TABLE = """n => [...document.querySelectorAll('main table')[n].tBodies[0].rows]
    .map(row => [...row.cells].map(cell => cell.innerText.trim()))"""
_FACTS = """() => Object.fromEntries([...document.querySelectorAll('main dl.facts dt')]
    .map(one => [one.innerText.trim(), one.nextElementSibling.innerText.trim()]))"""

# Headings of the pages of a change.
ASKED, DONE, REFUSED = (
    f"h1:text-is('{text}')" for text in ("Before you do that", "Done", "That did not work")
)


class Shown:
    """Pages of a console in one tab of a browser.

    Args:
        page: the tab, in which a user has signed in.
        world: where the console is.
    """

    def __init__(self, page: Any, world: World) -> None:
        self.page = page
        self._world = world

    async def open(self, path: str) -> None:
        """Opens a page, which is there."""
        answer = await self.page.goto(self._world.home + path)
        assert answer.ok, (path, await self.text())

    async def text(self) -> str:
        """All text of the page."""
        return str(await self.page.locator("main").inner_text())

    async def rows(self, number: int = 0, *columns: int) -> list[tuple[str, ...]]:
        """The cells of a table, row by row; only some columns, if they are named."""
        rows: list[list[str]] = await self.page.evaluate(_TABLE, number)
        return [tuple(row[each] for each in columns) if columns else tuple(row) for row in rows]

    async def facts(self) -> Mapping[str, str]:
        """What stands at each name of the lists of facts."""
        found: Mapping[str, str] = await self.page.evaluate(_FACTS)
        return found

    async def json(self, verb: str, **fields: object) -> Any:
        """What a verb answers to programs."""
        answer = await self.page.request.get(
            f"{self._world.home}/api/{verb.replace(' ', '/')}",
            params={name: str(each) for name, each in fields.items()},
        )
        assert answer.ok, await answer.text()
        return await answer.json()


async def refusal(page: Any) -> str:
    """The sentence of a page that says no; empty: it does not."""
    found = page.locator(f"main:has({REFUSED}) [role=alert], main:has({ASKED}) [role=alert]")
    return str(await found.first.inner_text()) if await found.count() else ""


async def ask(page: Any, home: str, action: Action) -> None:
    """Opens the page of an action, fills in its form and presses its button: the question comes."""
    await page.goto(home + action.page)
    if await refusal(page):
        return
    path = action.verb.replace(" ", "/")
    where = page.locator(action.within).first if action.within else page.locator("main")
    button = where.locator(
        f"form[action='/do/{path}'] button:not([formaction]){action.button}, button[formaction='/do/{path}']"
    ).first
    form = button.locator("xpath=ancestor::form")
    for name, value in action.fill.items():
        box = form.locator(f"[name='{name}']")
        kind = await box.first.evaluate("one => one.type")
        if kind == "checkbox":
            await form.locator(f"[name='{name}'][value='{value}']").check()
        elif kind == "select-one":
            await box.select_option(value)
        else:
            await box.fill(value)
    await button.click()
    await page.locator(f"{ASKED}, {REFUSED}").wait_for()


async def answer(page: Any) -> None:
    """Presses "Do it", and waits for what comes of it."""
    if await refusal(page):
        return
    secret = page.locator("input[type=password]")
    if await secret.count():
        await secret.fill(PASSWORD)
    await page.locator("button[name=confirmed]").click()
    await page.locator(f"{DONE}, {REFUSED}").wait_for()
