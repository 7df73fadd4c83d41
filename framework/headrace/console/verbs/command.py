"""
A command of the command line in a process of its own: for what takes long, and as much processor as it gets.

    headrace projection rebuild balances   ─▶ a line for each phase ─▶ what it did, in words

    headrace doctor --bundle FILE          ─▶ a file for those who help, which a browser downloads

The console goes on answering meanwhile, and a rebuild that fails takes nothing along. Addresses and passwords go to it in
its environment, where no list of processes shows them. Used by the verbs about projections and about
what is parked.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from headrace.console.content import hidden_failure
from headrace.console.problems import Mistake
from headrace.console.verbs.verb import Tell
from headrace.errors import HeadraceError
from headrace.settings import Settings
from headrace_mq.admin.client import AdminClient

__all__ = ["CommandAnswer", "DiagnosticsBundle", "environment_of", "run_command"]

# The exit status of a mistake, such as a rebuild that is under way already; others say how it ended.
_MISTAKE: Final = 2
# Of what it prints, so much is kept: a report of differences names the first of them.
_SHOWN_LINES_MAX: Final = 60
# Of one line so much is kept: more helps no reader.
_LINE_BYTES_MAX: Final = 4_096
_PIECE_BYTES: Final = 65_536
# How long a command that is ended may take to leave things as they should be.
_END_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """How a command ended.

    Attributes:
        done: it did what it was to do: nothing differs, or a table went live.
        lines: what it said.
    """

    done: bool
    lines: tuple[str, ...]


def environment_of(
    given: Mapping[str, str] | None, settings: Settings, broker: str
) -> dict[str, str]:
    """Returns the variables of a command about the console's application: addresses stand in no list of processes.

    Args:
        given: those of the console, with the application's path; None: it has none.
        settings: name its databases.
        broker: its address.

    Raises:
        Mistake: the application has no path.
    """
    if given is None:
        raise Mistake("this console was started without the application's path; name --app")
    return {
        **given,
        "HEADRACE_BROKER": broker,
        "HEADRACE_EVENT_STORE": settings.event_store,
        "HEADRACE_READ_MODELS": settings.read_models,
    }


class DiagnosticsBundle:
    """Makes bundles for those who help, what `headrace doctor --bundle FILE` writes, one at a time.

    Args:
        environment: variables of the process, with what the console knows of the deployment.
        options: of the command, for what has no variable.
    """

    def __init__(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> None:
        self._environment = environment
        self._options = options
        self._turn = asyncio.Lock()

    async def make(self, admin: AdminClient) -> bytes:
        """Returns a new bundle, a file of `.tar.gz`; it stands in the broker's audit that it was made.

        Args:
            admin: the connection of the user who wants it; it needs to administer the cluster, because a bundle tells of
                the console's machine, too.

        Raises:
            Mistake: another one is made at this time.
            NotPermitted: this user may not administer the cluster.
            HeadraceError: it could not be made; the sentence says why.
        """
        if self._turn.locked():
            raise Mistake("a bundle is being made for someone; try again when it is done")
        async with self._turn:
            await admin.note_change("doctor bundle")
            with TemporaryDirectory(prefix="headrace-bundle-") as folder:
                file = Path(folder) / "headrace-doctor.tar.gz"
                environment = {**self._environment, "HEADRACE_BROKER": admin.address}
                words = ["doctor", *self._options, "--bundle", str(file)]
                try:
                    await run_command(words, environment, lambda _: None)
                except HeadraceError:
                    # It ends so where something does not work, too; then the bundle says what.
                    if not file.exists():
                        raise
                return await asyncio.to_thread(file.read_bytes)


async def run_command(
    words: Sequence[str],
    environment: Mapping[str, str],
    tell: Tell,
    *,
    keeps: Callable[[str], bool] = lambda _: True,
    need: str = "",
) -> CommandAnswer:
    """Runs `headrace` with some words, to its end; ends it where the caller is cancelled.

    Args:
        words: such as `projection`, `verify`, `balances`.
        environment: all of its variables.
        tell: gets each line of its progress.
        keeps: whether a line of what it did is kept.
        need: what the user lacks to read what it says, which may quote events; empty: it is shown.

    Raises:
        HeadraceError: it could not begin or go on; the sentence is its own.
    """
    if need:
        tell, keeps = (lambda _: None), (lambda _: False)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", *words,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said, progress = await asyncio.gather(
            _lines(process.stdout, lambda _: None, keeps), _lines(process.stderr, tell)
        )
        status = await process.wait()
    finally:
        await _end(process)
    if need:
        if status not in {0, 1}:
            raise hidden_failure(need, status)
        ended = "it is done" if status == 0 else "it ended, but not all is as it should be"
        return CommandAnswer(done=status == 0, lines=(f"{ended}; what it said is hidden: {need}",))
    if status not in {0, 1} or (status and not said):
        raise HeadraceError(_sentence(progress, status))
    return CommandAnswer(done=status == 0, lines=tuple(said))


async def _lines(
    stream: asyncio.StreamReader, tell: Tell, keeps: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """Reads lines to the end; keeps the first ones, cuts long ones, and tells each of them."""
    kept: list[str] = []
    begun = bytearray()

    def end_line() -> None:
        text = begun.decode("utf-8", "replace").rstrip()
        begun.clear()
        tell(text)
        if keeps(text):
            kept.append(text)
            # The last line of what went wrong is the sentence.
            del kept[_SHOWN_LINES_MAX - 1 : -1]

    while piece := await stream.read(_PIECE_BYTES):
        first, *others = piece.split(b"\n")
        begun += first[: _LINE_BYTES_MAX - len(begun)]
        for part in others:
            end_line()
            begun += part[:_LINE_BYTES_MAX]
    if begun:
        end_line()
    return kept


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _sentence(progress: Sequence[str], status: int) -> str:
    told = next((one for one in reversed(progress) if one.startswith("headrace: ")), "")
    return told.removeprefix("headrace: ") or (
        progress[-1] if progress else f"the command ended with status {status}"
    )
