"""A row per event, of the ledger's events; workers import it, and copy few rows at a time."""

from ledger_app import Booked, Ledger, Noted
from pydantic import BaseModel
from pyspark import TaskContext

from headrace.app import App
from headrace.domain.message import DomainEvent, EventContext
from headrace.projections.definition.projection import Projection
from headrace.spark.executor import fold

# So that a task has copied some of its rows when it comes to a later one.
fold._BATCH_RECORDS = 100  # type: ignore[misc]  # a constant elsewhere


class Entry(BaseModel):
    entry_id: str
    text: str
    amount: int


def _entry_of(event: DomainEvent, context: EventContext) -> str:
    return f"{context.aggregate_id}/{context.version}/{context.sequence}"


entries = Projection("entries", row=Entry, key="entry_id", key_of=_entry_of)


@entries.fold
def booked(row: Entry | None, event: Booked, context: EventContext) -> Entry:
    return Entry(entry_id=_entry_of(event, context), text=event.partner, amount=event.amount)


@entries.fold
def noted(row: Entry | None, event: Noted, context: EventContext) -> Entry:
    task = TaskContext.get()
    if event.text == "again" and task is not None and task.attemptNumber() == 0:
        raise RuntimeError("the first attempt at this task fails")
    return Entry(entry_id=_entry_of(event, context), text=event.text, amount=0)


app = App("ledger")
app.add(Ledger, entries)
