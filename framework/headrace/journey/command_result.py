"""
What became of commands: of one by its id, and of the newest ones, with counts.

    executed, rejected, unchanged    it is stored in the event store
    parked, held                     an operator must retry or skip it, or the one before it
    waits                            its message is in the topic, and it has stored nothing yet
    damaged                          what it stored cannot be read

Used by `headrace command show` and `headrace command results`, and by the console's verbs of the same names.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.aggregates.command_directory import open_command_directory
from headrace.app import App
from headrace.commands.answer import result_of
from headrace.errors import DamagedStream
from headrace.figures.records import id_of
from headrace.journey.command_search import CommandSearch, FoundCommand, open_commands
from headrace.journey.in_flight import parked_errors
from headrace.settings import Settings
from headrace.stores.base import LetterState, StoredStream
from headrace_mq.admin.client import AdminClient

__all__ = [
    "COUNTED_MAX",
    "NewestResults",
    "command_found",
    "newest_results",
    "plain_result",
    "result_row",
]

# Results of which the outcomes are counted: the newest ones.
COUNTED_MAX: Final = 1_000
# What a command fails with that others of its aggregate disturbed too often.
_CONFLICT: Final = "Busy"


class NewestResults:
    """A page of results, and what the newest ones came to.

    Args:
        page: of results, the newest first.
        following: the position behind which the next page begins; None: this is the last one.
        outcomes: how many of the newest had each status and error.
        counted: how many were counted.
        parked: how many commands are parked, by the error.
    """

    def __init__(
        self,
        page: Sequence[StoredStream | DamagedStream],
        following: int | None,
        outcomes: Mapping[tuple[str, str], int],
        counted: int,
        parked: Mapping[str, int],
    ) -> None:
        self.page = page
        self.following = following
        self.outcomes = outcomes
        self.counted = counted
        self.parked = parked

    @property
    def plain(self) -> dict[str, Any]:
        """The counts as JSON values, without the page."""
        return {
            "outcomes": [
                {"status": status, "error": error, "commands": count}
                for (status, error), count in sorted(
                    self.outcomes.items(), key=lambda one: (-one[1], one[0])
                )
            ],
            "counted": self.counted,
            "parked": [
                {"error": error, "commands": count}
                for error, count in sorted(self.parked.items(), key=lambda one: (-one[1], one[0]))
            ],
            "conflicts": self.parked.get(_CONFLICT, 0),
            "next": self.following,
        }


async def command_found(
    admin: AdminClient, app: App, settings: Settings, command_id: str, aggregate_id: str = ""
) -> FoundCommand:
    """Returns what is known of a command.

    Args:
        admin: asks the broker.
        app: the application.
        settings: name its databases, whose schemas are up to date.
        command_id: its id.
        aggregate_id: whose command it is; empty: it is searched by its id alone.
    """
    async with open_commands(app, settings) as (databases, directory):
        search = CommandSearch(admin, app, databases, directory)
        aggregate_id = aggregate_id or await search.aggregate_of(command_id)
        return await search.look(aggregate_id, command_id)


async def newest_results(
    app: App, settings: Settings, *, before: int | None = None, rows: int = 50
) -> NewestResults:
    """Returns what commands stored, the newest first, and counts of the newest ones.

    Args:
        app: the application.
        settings: name its databases, whose schemas are up to date.
        before: only those at lower positions; None: all.
        rows: how many at most, below `COUNTED_MAX`.
    """
    serializer = app.serializer_at(settings.event_store)
    try:
        async with open_command_directory(settings.event_store, serializer) as directory:
            outcomes = await directory.outcomes(limit=COUNTED_MAX)
            page = await directory.newest(before=before, limit=rows + 1)
            letters = await directory.parked()
    finally:
        serializer.close()
    return NewestResults(
        page=page[:rows],
        following=page[rows - 1].position if len(page) > rows else None,
        outcomes=outcomes,
        counted=outcomes.total(),
        parked=parked_errors(letters),
    )


def plain_result(found: FoundCommand) -> dict[str, Any]:
    """Returns the result of a command as JSON values; what its events hold is not in it.

    Args:
        found: of `command_found`.
    """
    told: dict[str, Any] = {
        "command_id": found.command_id,
        "command": found.name,
        "aggregate_id": found.aggregate_id,
        "caused_by": found.chain if found.chain != found.command_id else "",
        "status": "unknown",
        "version": None,
        "error": "",
        "sentence": "",
        "recorded_at": "",
        "messages": [id_of(one) for one in found.messages],
    }
    if found.stream is not None:
        result = result_of(found.stream, None)
        return told | {
            "status": result.status, "version": result.version, "error": result.error,
            "sentence": result.sentence, "recorded_at": found.stream.recorded_at.isoformat(),
        }  # fmt: skip
    if found.damage:
        return told | {"status": "damaged", "sentence": found.damage}
    if found.letter is not None:
        held = found.letter.state is LetterState.HELD
        return told | {
            "status": "held" if held else "parked", "error": found.letter.error,
            "sentence": found.letter.sentence, "recorded_at": found.letter.parked_at.isoformat(),
        }  # fmt: skip
    return told | {"status": "waits"} if found.messages else told


def result_row(found: StoredStream | DamagedStream) -> dict[str, Any]:
    """Returns one of the newest results as JSON values: names of events, and nothing that they hold.

    Args:
        found: of a page of results.
    """
    if isinstance(found, DamagedStream):
        return {
            "position": found.position, "recorded_at": "", "command_id": found.command_id, "aggregate_type": "",
            "aggregate_id": found.aggregate_id, "status": "damaged", "version": found.version, "error": "",
            "sentence": found.why, "events": [],
        }  # fmt: skip
    stream, result = found.stream, result_of(found.stream, None)
    return {
        "position": found.position, "recorded_at": stream.recorded_at.isoformat(), "command_id": stream.command_id,
        "aggregate_type": stream.aggregate_type, "aggregate_id": stream.aggregate_id, "status": result.status,
        "version": stream.version, "error": result.error, "sentence": result.sentence,
        "events": [each.message_name for each in (*stream.events, *stream.messages)],
    }  # fmt: skip
