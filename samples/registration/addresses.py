"""An e-mail address: the first user to claim it has it, until it is released."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator

from headrace import Aggregate, AggregateId, Command, DomainError, DomainEvent, applies


def normalized(email: str) -> str:
    """One text for all ways to write an address: this is what must be unique."""
    email = unicodedata.normalize("NFKC", email).strip().casefold()
    local, at, domain = email.rpartition("@")
    if not (local and at and domain) or any(character.isspace() for character in email):
        raise ValueError("an e-mail address looks like name@example.org")
    return email


# Normalized before anything else happens, so that equal addresses are one aggregate.
Email = Annotated[AggregateId, AfterValidator(normalized)]


class Register(Command):
    """A new user wants the address."""

    email: Email
    user_id: str
    name: str


class ClaimEmail(Command):
    """A user there is wants the address instead of the old one."""

    email: Email
    user_id: str


class ReleaseEmail(Command):
    email: Email
    claim: int


class UserRegistered(DomainEvent):
    user_id: str
    name: str
    claim: int


class EmailClaimed(DomainEvent):
    user_id: str
    claim: int


class EmailReleased(DomainEvent):
    pass


class EmailTaken(DomainError):
    """The address belongs to another account."""


class EmailAddress(Aggregate):
    """An address is held by one user or is free.

    Claims are numbered, so that a release that comes late, after the same user has claimed the
    address again, does not take it away.
    """

    holder: str
    claim: int

    def initial_state(self) -> None:
        self.holder = ""
        self.claim = 0

    def register(self, user_id: str, name: str) -> None:
        if self.holder:
            raise EmailTaken(f"{self.id} belongs to another user already")
        self.record(UserRegistered(user_id=user_id, name=name, claim=self.claim + 1))

    def claim_for(self, user_id: str) -> None:
        if self.holder not in {"", user_id}:
            raise EmailTaken(f"{self.id} belongs to another user already")
        self.record(EmailClaimed(user_id=user_id, claim=self.claim + 1))

    def release(self, claim: int) -> None:
        if self.holder and claim == self.claim:
            self.record(EmailReleased())

    @applies
    def _registered(self, event: UserRegistered) -> None:
        self.holder, self.claim = event.user_id, event.claim

    @applies
    def _claimed(self, event: EmailClaimed) -> None:
        self.holder, self.claim = event.user_id, event.claim

    @applies
    def _released(self, event: EmailReleased) -> None:
        self.holder = ""
