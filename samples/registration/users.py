"""A user: has a name and, at any time, one e-mail address."""

from headrace import Aggregate, AggregateId, Command, DomainError, DomainEvent, applies


class CreateUser(Command):
    user_id: AggregateId
    name: str
    email: str
    claim: int


class ChangeEmail(Command):
    user_id: AggregateId
    email: str
    claim: int


class CloseUser(Command):
    user_id: AggregateId


class UserCreated(DomainEvent):
    name: str
    email: str
    claim: int


class EmailChanged(DomainEvent):
    email: str
    claim: int
    old_email: str
    old_claim: int


class UserClosed(DomainEvent):
    email: str
    claim: int


class UserIsClosed(DomainError):
    """A closed user changes no more."""


class User(Aggregate):
    email: str
    claim: int
    closed: bool

    def initial_state(self) -> None:
        self.email = ""
        self.claim = 0
        self.closed = False

    @classmethod
    def create(cls, user_id: str, name: str, email: str, claim: int) -> "User":
        user = cls(user_id)
        user.record(UserCreated(name=name, email=email, claim=claim))
        return user

    def change_email(self, email: str, claim: int) -> None:
        if self.closed:
            raise UserIsClosed(f"user {self.id} is closed")
        self.record(
            EmailChanged(email=email, claim=claim, old_email=self.email, old_claim=self.claim)
        )

    def close(self) -> None:
        if not self.closed:
            self.record(UserClosed(email=self.email, claim=self.claim))

    @applies
    def _created(self, event: UserCreated) -> None:
        self.email, self.claim = event.email, event.claim

    @applies
    def _email_changed(self, event: EmailChanged) -> None:
        self.email, self.claim = event.email, event.claim

    @applies
    def _closed(self, event: UserClosed) -> None:
        self.closed = True
