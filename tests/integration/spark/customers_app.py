"""Customers whose email is personal; workers import it. Keys are in a folder that its environment names."""

import os
from typing import Annotated

from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainError,
    DomainEvent,
    EventContext,
    Personal,
    Projection,
    applies,
)
from headrace.folds import count, last
from headrace.subjects.folder import FolderKeys

Email = Annotated[str, Personal(subject="customer_id")]


class SetEmail(Command):
    customer_id: AggregateId
    email: Email
    born: Annotated[int, Personal(subject="customer_id", placeholder=0)]


class EmailSet(DomainEvent):
    customer_id: str
    email: Email
    born: Annotated[int, Personal(subject="customer_id", placeholder=0)]


class Taken(DomainError):
    pass


class Customer(Aggregate, snapshot_events=1):
    def initial_state(self) -> None:
        self.email = ""

    def set_email(self, email: str, born: int) -> None:
        if email == self.email:
            raise Taken("that is the email already")
        self.record(EmailSet(customer_id=self.id, email=email, born=born))

    @applies
    def _email_set(self, event: EmailSet) -> None:
        self.email = event.email


class Contact(BaseModel):
    customer: str
    email: str
    born: int
    changes: int


class LastEmail(BaseModel):
    customer: str
    email: str = ""
    changes: int = 0


contacts = Projection("contacts", row=Contact, key="customer")
last_emails = Projection("last_emails", row=LastEmail, key="customer")
last_emails.on(EmailSet, email=last("email"), changes=count())


@contacts.fold
def email_set(row: Contact | None, event: EmailSet, context: EventContext) -> Contact:
    changes = 1 if row is None else row.changes + 1
    return Contact(
        customer=context.aggregate_id, email=event.email, born=event.born, changes=changes
    )


app = App("customers")
app.add(Customer, contacts, last_emails)
app.keep_keys(FolderKeys(os.environ.get("CUSTOMERS_KEYS", "keys")))


@app.handles
async def set_email(command: SetEmail, context: CommandContext) -> None:
    customer = await context.get_or_add(
        Customer, command.customer_id, lambda: Customer(command.customer_id)
    )
    customer.set_email(command.email, command.born)
