"""The supervised process: its lines, its last words, its end."""

import asyncio
import signal
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.supervisor.child import Child, OutputTail


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 100))
def test_a_tail_is_the_end_of_what_came_within_its_bound(chunks: list[bytes], most: int) -> None:
    tail = OutputTail(most)
    for chunk in chunks:
        tail.feed(chunk)
    end = b"".join(chunks)[-most:].decode("utf-8", "replace")
    assert end.endswith(tail.text())
    assert bool(tail.text()) is bool(end)


def test_a_line_that_was_cut_is_left_out() -> None:
    tail = OutputTail(12)
    tail.feed(b"a long line\nshort\nend\n")
    assert tail.text() == "short\nend\n"


async def start(code: str, lines: "asyncio.Queue[str]") -> Child:
    command = (sys.executable, "-S", "-c", code)
    return await Child.start(command, stderr_bytes_max=1_000, said=lines.put_nowait)


async def test_the_lines_of_a_process_are_heard_and_its_last_ones_are_kept_and_passed_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()
    child = await start(
        "import sys; print('one'); print('two'); sys.stderr.write('oh\\n'); sys.exit(3)", lines
    )
    assert await child.ended() == 3
    assert [lines.get_nowait(), lines.get_nowait()] == ["one", "two"]
    assert child.last_lines == "oh\n"
    assert capfd.readouterr().err == "oh\n"


async def test_a_stopped_process_takes_a_signal_and_an_ended_one_takes_none() -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()
    child = await start("import signal; print('up', flush=True); signal.pause()", lines)
    assert await lines.get() == "up"
    child._process.send_signal(signal.SIGSTOP)
    child.signal(signal.SIGTERM)
    assert await child.ended() == -signal.SIGTERM
    child.signal(signal.SIGTERM)


class Closed:
    """A stream whose reader is gone."""

    def write(self, _: bytes) -> int:
        raise BrokenPipeError

    @property
    def buffer(self) -> "Closed":
        return self


async def test_the_streams_of_a_process_are_read_to_the_end_without_a_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def said(_: str) -> None:
        raise BrokenPipeError

    more_than_pipes_hold = 200_000
    code = f"import sys\nfor to in (sys.stdout, sys.stderr): to.write('line\\n' * {more_than_pipes_hold})"
    monkeypatch.setattr(sys, "stderr", Closed())
    child = await Child.start((sys.executable, "-S", "-c", code), stderr_bytes_max=10, said=said)
    assert (await child.ended(), child.last_lines) == (0, "line\n")


async def test_signals_to_one_that_is_just_ending_take_no_status_away() -> None:
    for _ in range(8):
        lines: asyncio.Queue[str] = asyncio.Queue()
        child = await start("import signal; print('up', flush=True); signal.pause()", lines)
        assert await lines.get() == "up"
        child.signal(signal.SIGTERM)
        # It ends among these, in the kernel; asyncio has not been told yet.
        for _ in range(5_000):
            child.signal(signal.SIGCONT)
        assert await child.ended() == -signal.SIGTERM
