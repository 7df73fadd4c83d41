"""A command in a process of its own: its progress, its end, and what it says when it fails."""

import asyncio
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from headrace.console.problems import Mistake
from headrace.console.verbs import command
from headrace.console.verbs.command import DiagnosticsBundle, run_command
from headrace.errors import HeadraceError
from headrace_mq import AdminClient


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


class Doctor:
    """In place of the process: writes a file or fails, once the test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headrace.console.verbs.command.run_command", self.run)
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.writes, self.fails = True, False
        self.asked: list[tuple[list[str], dict[str, str]]] = []

    async def run(self, words: list[str], environment: dict[str, str], _tell: Any) -> None:
        self.asked.append((words, environment))
        await self.go_on.wait()
        if self.writes:
            with open(words[-1], "xb") as file:  # noqa: ASYNC230, PTH123 - a small file of the test
                file.write(b"packed")
        if self.fails:
            raise HeadraceError("the disk is full")


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch) -> Doctor:
    return Doctor(monkeypatch)


async def test_a_bundle_is_made_of_what_the_console_knows(
    doctor: Doctor, admin: AdminClient
) -> None:
    bundle = DiagnosticsBundle({"HEADRACE_APP": "a:b"}, ("--group", "g1"))
    assert await bundle.make(admin) == b"packed"
    ((words, environment),) = doctor.asked
    assert words[:-1] == ["doctor", "--group", "g1", "--bundle"]
    assert environment == {"HEADRACE_APP": "a:b", "HEADRACE_BROKER": admin.address}
    assert not os.path.exists(words[-1])  # noqa: ASYNC240, PTH110 - a look


async def test_a_doctor_that_finds_a_fault_gives_a_bundle_all_the_same(
    doctor: Doctor, admin: AdminClient
) -> None:
    doctor.fails = True
    assert await DiagnosticsBundle({}).make(admin) == b"packed"
    doctor.writes = False
    with pytest.raises(HeadraceError, match="disk is full"):
        await DiagnosticsBundle({}).make(admin)


async def test_one_bundle_is_made_at_a_time(doctor: Doctor, admin: AdminClient) -> None:
    bundle = DiagnosticsBundle({})
    doctor.go_on.clear()
    first = asyncio.create_task(bundle.make(admin))
    async with asyncio.timeout(60):
        while not doctor.asked:
            await asyncio.sleep(0)
    with pytest.raises(Mistake, match="try again"):
        await bundle.make(admin)
    doctor.go_on.set()
    assert await first == b"packed"


async def test_a_bundle_is_for_those_who_may_administer_and_stands_in_the_audit(
    doctor: Doctor, guarded: str, console: Any
) -> None:
    browser = await console(guarded, bundle=DiagnosticsBundle({}))
    answer = await browser.client.post("/doctor/bundle")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    await browser.sign_in("ann", "secret of ann")
    token = {"token": await browser.token()}
    refused = await browser.client.post("/doctor/bundle", data=token)
    assert (refused.status_code, doctor.asked) == (403, [])
    await browser.client.post("/sign-out", data=token)
    await browser.sign_in("root", "secret of root")
    assert (await browser.client.post("/doctor/bundle", data={"token": "0"})).status_code == 403
    assert 'action="/doctor/bundle"' in await browser.page("/")
    answer = await browser.client.post("/doctor/bundle", data={"token": await browser.token()})
    assert (answer.status_code, answer.content) == (200, b"packed")
    assert "headrace-doctor.tar.gz" in answer.headers["content-disposition"]
    assert "doctor bundle" in await browser.page("/audit", action="note_change")


async def test_a_console_of_a_program_makes_no_bundle(browser: Any) -> None:
    assert "/doctor/bundle" not in await browser.page("/")
    answer = await browser.client.post("/doctor/bundle", data={"token": await browser.token()})
    assert (answer.status_code, "headrace doctor --bundle FILE" in answer.text) == (422, True)


async def test_a_bundle_of_a_real_doctor_has_its_report_and_no_password(
    guarded: str, console: Any
) -> None:
    bundle = DiagnosticsBundle(
        {**os.environ} | {"HEADRACE_ARCHIVE__URL": "postgresql://a:hunter2@db/x"}
    )
    browser = await console(guarded, bundle=bundle)
    await browser.sign_in("root", "secret of root")
    answer = await browser.client.post("/doctor/bundle", data={"token": await browser.token()})
    assert answer.status_code == 200, answer.text
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        files = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    assert {"headrace-doctor/report.json", "headrace-doctor/broker.json"} <= texts.keys()
    assert "not_asked" not in texts["headrace-doctor/broker.json"]
    for text in texts.values():
        assert "secret of root" not in text
        assert "hunter2" not in text
