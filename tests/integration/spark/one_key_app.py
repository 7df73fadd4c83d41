"""One row that all notes of the ledger touch; workers import it."""

from ledger_app import Ledger, Noted
from pydantic import BaseModel

from headrace.app import App
from headrace.domain.message import DomainEvent, EventContext
from headrace.projections.definition.projection import Projection


class Notes(BaseModel):
    ledger: str
    count: int
    length: int


def _all(event: DomainEvent, context: EventContext) -> str:
    return "all"


notes = Projection("notes", row=Notes, key="ledger", key_of=_all)


@notes.fold
def noted(row: Notes | None, event: Noted, context: EventContext) -> Notes:
    before = row or Notes(ledger="all", count=0, length=0)
    length = before.length + len(event.text)
    return Notes(ledger="all", count=before.count + 1, length=length)


app = App("ledger")
app.add(Ledger, notes)
