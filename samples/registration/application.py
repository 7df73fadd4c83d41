"""Addresses and users bound together; run it with `headrace run samples.registration:app`."""

from collections.abc import Iterable

from pydantic import BaseModel

from headrace import (
    App,
    Command,
    CommandContext,
    EventContext,
    ProcessManager,
    Projection,
    Rejection,
)
from samples.registration.addresses import (
    ClaimEmail,
    EmailAddress,
    EmailClaimed,
    Register,
    ReleaseEmail,
    UserRegistered,
)
from samples.registration.users import (
    ChangeEmail,
    CloseUser,
    CreateUser,
    EmailChanged,
    User,
    UserClosed,
    UserCreated,
)

# Who has an address gets it as a user; an address that is not used any more becomes free.
registration = ProcessManager("registration")


@registration.on
def registered(event: UserRegistered, context: EventContext) -> Iterable[Command]:
    yield CreateUser(
        user_id=event.user_id, name=event.name, email=context.aggregate_id, claim=event.claim
    )


@registration.on
def claimed(event: EmailClaimed, context: EventContext) -> Iterable[Command]:
    yield ChangeEmail(user_id=event.user_id, email=context.aggregate_id, claim=event.claim)


@registration.on
def changed(event: EmailChanged, context: EventContext) -> Iterable[Command]:
    yield ReleaseEmail(email=event.old_email, claim=event.old_claim)


@registration.on
def closed(event: UserClosed, context: EventContext) -> Iterable[Command]:
    yield ReleaseEmail(email=event.email, claim=event.claim)


@registration.on_rejection
def not_created(command: CreateUser, rejection: Rejection) -> Iterable[Command]:
    yield ReleaseEmail(email=command.email, claim=command.claim)


@registration.on_rejection
def not_changed(command: ChangeEmail, rejection: Rejection) -> Iterable[Command]:
    yield ReleaseEmail(email=command.email, claim=command.claim)


class UserRow(BaseModel):
    user_id: str
    name: str
    email: str
    closed: bool = False


users = Projection("users", row=UserRow, key="user_id")


@users.fold
def user_created(row: UserRow | None, event: UserCreated, context: EventContext) -> UserRow:
    return UserRow(user_id=context.aggregate_id, name=event.name, email=event.email)


@users.fold
def user_email_changed(row: UserRow, event: EmailChanged, context: EventContext) -> UserRow:
    return row.model_copy(update={"email": event.email})


@users.fold
def user_closed(row: UserRow, event: UserClosed, context: EventContext) -> UserRow:
    return row.model_copy(update={"closed": True})


app = App("registration")
app.add(EmailAddress, User, registration, users)


async def _address(email: str, context: CommandContext) -> EmailAddress:
    """The address, which may never have been claimed."""
    return await context.get_or_add(EmailAddress, email, lambda: EmailAddress(email))


@app.handles
async def register(command: Register, context: CommandContext) -> None:
    (await _address(command.email, context)).register(command.user_id, command.name)


@app.handles
async def claim_email(command: ClaimEmail, context: CommandContext) -> None:
    (await _address(command.email, context)).claim_for(command.user_id)


@app.handles
async def release_email(command: ReleaseEmail, context: CommandContext) -> None:
    (await context.get(EmailAddress, command.email)).release(command.claim)


@app.handles
async def create_user(command: CreateUser, context: CommandContext) -> None:
    context.add(User.create(command.user_id, command.name, command.email, command.claim))


@app.handles
async def change_email(command: ChangeEmail, context: CommandContext) -> None:
    (await context.get(User, command.user_id)).change_email(command.email, command.claim)


@app.handles
async def close_user(command: CloseUser, context: CommandContext) -> None:
    (await context.get(User, command.user_id)).close()
