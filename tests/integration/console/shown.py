"""What a page shows, as a browser renders it, and the same of its JSON."""

from collections.abc import Mapping
from typing import Any

from tests.integration.console.world import World

_TABLE = """n => [...document.querySelectorAll('main table')[n].tBodies[0].rows]
    .map(row => [...row.cells].map(cell => cell.innerText.trim()))"""
_FACTS = """() => Object.fromEntries([...document.querySelectorAll('main dl.facts dt')]
    .map(one => [one.innerText.trim(), one.nextElementSibling.innerText.trim()]))"""


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
