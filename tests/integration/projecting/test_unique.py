"""A unique index: live it parks the aggregate that breaks it, and a rebuild does not go live."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    Index,
    Projection,
    Settings,
    applies,
)
from headrace.errors import NotYetHandled, ProjectionError
from headrace.folds import last
from headrace.projections.letters import Letters
from headrace.projections.tables.index.live import make_indexes, missing_indexes


class Join(Command):
    member_id: AggregateId
    email: str


class Joined(DomainEvent):
    email: str


class Member(Aggregate):
    """Someone who has joined."""

    @applies
    def _joined(self, event: Joined) -> None:
        pass


class Row(BaseModel):
    member_id: str
    email: str = ""


def made(*indexes: Index) -> tuple[App, Projection[Row]]:
    members = Projection("members", row=Row, key="member_id", indexes=indexes)
    members.on(Joined, email=last("email"))
    app = App("club")
    app.add(Member, members)

    @app.handles
    async def join(command: Join, context: CommandContext) -> None:
        name = command.member_id
        member = await context.get_or_add(Member, name, lambda: Member(name))
        member.record(Joined(email=command.email))

    return app, members


async def test_a_row_that_breaks_a_unique_index_is_parked_and_taken_up_later(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path / 'events.db'}"
    settings = Settings(event_store=store, read_models=f"sqlite:///{tmp_path / 'read.db'}")
    app, members = made(Index("email", unique=True))
    async with app.run_local(settings) as running:
        await running.bus.execute(Join(member_id="ann", email="a@x"), wait_for=[members])
        with pytest.raises(NotYetHandled, match="has parked bob"):
            await running.bus.execute(Join(member_id="bob", email="a@x"), wait_for=[members])
        # Everyone else goes on.
        await running.bus.execute(Join(member_id="cid", email="c@x"), wait_for=[members])
        letters: Any = Letters(members, running.read_models, running.store)
        (letter,) = await letters.all()
        assert "two rows would have the same email" in letter.error
        await running.bus.execute(Join(member_id="ann", email="b@x"), wait_for=[members])
        assert await letters.retry("bob") is None
        assert (await running.read(members).get("bob")).email == "a@x"


async def test_an_index_that_rows_break_is_not_made_on_the_live_table(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'events.db'}"
    settings = Settings(event_store=store, read_models=f"sqlite:///{tmp_path / 'read.db'}")
    app, members = made()
    async with app.run_local(settings) as running:
        for name in ("ann", "bob"):
            await running.bus.execute(Join(member_id=name, email="a@x"), wait_for=[members])
    app, members = made(Index("email", unique=True))
    async with app.run_local(settings) as running:
        # It goes on without the index, and says so.
        await running.bus.execute(Join(member_id="cid", email="a@x"), wait_for=[members])
        assert await missing_indexes(running.read_models, members) == list(members.indexes)
        with pytest.raises(ProjectionError, match="rows ann and bob of members__1"):
            await make_indexes(running.read_models, members)
