"""The cost of metrics: a scrape that fails ends the measurement, and each case has a folder of its own."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scrapes
from benchmarks.mq.__main__ import Case


def scrape_that_fails(_port: int) -> bytes:
    raise ConnectionRefusedError("no metrics there")


async def reading_ends() -> None:
    while any(task.get_name() == "scrapes" for task in asyncio.all_tasks()):
        await asyncio.sleep(0)


async def test_a_scrape_that_fails_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "scrape", scrape_that_fails)
    with pytest.raises(ConnectionRefusedError, match="no metrics there"):
        async with scrapes.scraped(1):
            await reading_ends()


async def test_an_error_of_the_workload_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "scrape", scrape_that_fails)

    async def fail() -> None:
        async with scrapes.scraped(1):
            await reading_ends()
            raise ValueError("of the workload")

    with pytest.raises(ValueError, match="of the workload"):
        await fail()


async def test_scrapes_that_succeed_end_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(scrapes, "scrape", lambda port: bytes(asked.append(port) or b""))
    async with scrapes.scraped(7):
        while not asked:
            await asyncio.sleep(0)
    assert asked == [7]
    await reading_ends()


async def test_each_case_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders: list[Path] = []

    async def compare(folder: Path, _case: Case, _pairs: int, _topics: int) -> dict[str, Any]:
        assert folder.is_relative_to(tmp_path)
        folders.append(folder)
        return {}

    async def scrape_time(*_place: Any, behind: bool = False) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(scrapes, "compare", compare)
    monkeypatch.setattr(scrapes, "scrape_time", scrape_time)
    monkeypatch.setattr(scrapes, "facts", dict)
    monkeypatch.setattr(sys, "argv", ["scrapes", "--directory", str(tmp_path)])
    await scrapes.main()
    assert len(set(folders)) == len(folders) == 3
    assert capsys.readouterr().out.count('"case"') == 3
