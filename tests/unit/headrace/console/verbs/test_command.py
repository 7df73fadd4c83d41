"""A command in a process of its own: its progress, its end, and what it says when it fails."""

import asyncio
import os
from pathlib import Path

import pytest

from headrace.console.verbs import command
from headrace.console.verbs.command import run_command
from headrace.errors import HeadraceError


@pytest.fixture
def headrace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is run in place of Python: a script of the test."""
    script = tmp_path / "python"
    monkeypatch.setattr(command.sys, "executable", str(script))
    return script


def write(script: Path, text: str) -> None:
    script.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    script.chmod(0o700)


async def test_a_command_tells_its_progress_and_what_it_did(headrace: Path) -> None:
    write(headrace, 'echo "read: 5 ahead" >&2; echo "words: $*"; echo "$HEADRACE_APP"')
    told: list[str] = []
    found = await run_command(
        ["projection", "verify", "balances"],
        os.environ | {"HEADRACE_APP": "samples.bank:app"},
        told.append,
    )
    assert found.done
    assert found.lines == ("words: -m headrace projection verify balances", "samples.bank:app")
    assert told == ["read: 5 ahead"]


async def test_a_command_that_found_differences_is_no_failure(headrace: Path) -> None:
    write(headrace, "echo '2 differ'; exit 1")
    found = await run_command(["x"], os.environ, lambda _: None)
    assert (found.done, found.lines) == (False, ("2 differ",))


async def test_a_command_that_failed_keeps_its_sentence(headrace: Path) -> None:
    write(headrace, "echo 'read …' >&2; echo 'headrace: another rebuild is under way' >&2; exit 2")
    with pytest.raises(HeadraceError, match="another rebuild is under way"):
        await run_command(["x"], os.environ, lambda _: None)
    write(headrace, "exit 3")
    with pytest.raises(HeadraceError, match="ended with status 3"):
        await run_command(["x"], os.environ, lambda _: None)


async def test_a_command_with_much_to_say_is_cut(headrace: Path) -> None:
    write(headrace, "seq 1 5000")
    found = await run_command(["x"], os.environ, lambda _: None)
    assert (len(found.lines), found.lines[0], found.lines[-1]) == (60, "1", "5000")


async def test_a_long_line_is_cut_and_ends_nothing(headrace: Path) -> None:
    write(
        headrace,
        "head -c 70000 /dev/zero | tr '\\0' x; echo; printf 'a b\nend'; head -c 70000 /dev/zero >&2",
    )
    told: list[str] = []
    found = await run_command(["x"], os.environ, told.append)
    assert found.lines == ("x" * 4_096, "a b", "end")
    assert [len(one) for one in told] == [4_096]


async def test_a_command_keeps_the_lines_that_are_wanted(headrace: Path) -> None:
    write(headrace, "seq 1 100")
    found = await run_command(["x"], os.environ, lambda _: None, keeps=lambda one: "7" in one)
    assert found.lines[:3] == ("7", "17", "27")


async def test_a_command_ends_with_the_change_that_it_does(headrace: Path) -> None:
    write(headrace, "echo $$ >&2; exec sleep 1000")
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        run_command(["x"], os.environ, lambda line: begun.set_result(int(line)))
    )
    number = await begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


async def test_the_words_of_a_command_are_hidden_where_content_is(
    headrace: Path,
) -> None:
    told: list[str] = []
    for status, done in ((0, True), (1, False)):
        write(headrace, f"echo secret; echo secret >&2; exit {status}")
        found = await run_command(["x"], os.environ, told.append, need="needs consume on t")
        assert found.done is done
        assert "hidden: needs consume on t" in found.lines[0]
        assert "secret" not in str(found)
    write(headrace, "echo 'headrace: secret' >&2; exit 2")
    with pytest.raises(HeadraceError, match=r"status 2.*hidden: needs consume on t") as raised:
        await run_command(["x"], os.environ, told.append, need="needs consume on t")
    assert "secret" not in str(raised.value)
    assert told == []
