"""Fields of rows that have the names of SQL's words: every statement of a projection takes them."""

from pathlib import Path
from typing import Any

from pydantic import create_model

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Projection,
    applies,
)
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade

TEXT = (
    "all analyse and any array as asc between both case cast check collate collation column commit"
    " concurrently conflict constraint create cross current_date current_user default deferrable"
    " delete desc distinct do else end except excluded exists fetch filter for foreign freeze from"
    " full generated glob grant group having if ignore ilike in index initially inner insert"
    " instead intersect interval into is isnull join last lateral leading left like limit"
    " localtime match natural no not nothing notnull null of offset oid on only or order outer over"
    " overlaps partition placing plan pragma primary raise references regexp replace returning"
    " right rollback row rowid rows select session_user set similar some symmetric table"
    " tablesample then to trailing trigger union unique update user using vacuum values variadic"
    " verbose view when where window with without Upper über"
)
WORDS = TEXT.split()

Row: Any = create_model("Row", key=(str, ...), **dict.fromkeys(WORDS, (int, 0)))


class Count(Command):
    counter_id: AggregateId
    times: int = 1


class Counted(DomainEvent):
    pass


class Counter(Aggregate):
    @applies
    def _counted(self, event: Counted) -> None:
        pass


def counting() -> tuple[App, Projection[Any]]:
    app = App("counting")
    words = Projection("words", row=Row, key="key")

    @words.fold
    def counted(row: Row | None, event: Counted, context: EventContext) -> Row:
        count = row.select if row else 0
        return Row(key=context.aggregate_id, **dict.fromkeys(WORDS, count + 1))

    app.add(Counter, words)

    @app.handles
    async def count(command: Count, context: CommandContext) -> None:
        counter = Counter(command.counter_id)
        for _ in range(command.times):
            counter.record(Counted())
        context.add(counter)

    return app, words


async def check(read_models: str) -> None:
    app, words = counting()
    async with app.run_local(Settings(read_models=read_models)) as running:
        await running.bus.execute(Count(counter_id="a"), wait_for=[words])
        await running.bus.execute(Count(counter_id="b", times=2), wait_for=[words])
        reader = running.read(words)
        found = await reader.get("b")
        assert found == Row(key="b", **dict.fromkeys(WORDS, 2))
        for word in WORDS:
            assert await reader.where(**{word: 2}) == [found]


async def test_words_of_sql_are_names_of_columns_on_sqlite(tmp_path: Path) -> None:
    await check(f"sqlite:///{tmp_path}/read.db")


async def test_words_of_sql_are_names_of_columns_on_postgresql(postgres_database: str) -> None:
    await upgrade(postgres_database)
    await check(postgres_database)
