"""A transfer: money leaves one account, then arrives at another, or comes back."""

from collections.abc import Iterable

from headrace import (
    Aggregate,
    AggregateId,
    Command,
    DomainError,
    DomainEvent,
    EventContext,
    ProcessManager,
    Rejection,
    applies,
)
from samples.bank.accounts import (
    AccountId,
    MoneyReceived,
    MoneyReturned,
    MoneySent,
    ReceiveMoney,
    ReturnMoney,
    SendMoney,
)


class RequestTransfer(Command):
    transfer_id: AggregateId
    source: AccountId
    target: AccountId
    amount: int


class CompleteTransfer(Command):
    transfer_id: AggregateId


class CancelTransfer(Command):
    transfer_id: AggregateId
    reason: str


class TransferRequested(DomainEvent):
    source: str
    target: str
    amount: int


class TransferCompleted(DomainEvent):
    pass


class TransferCancelled(DomainEvent):
    reason: str


class SameAccount(DomainError):
    """A transfer needs two different accounts."""


class Transfer(Aggregate):
    """A transfer remembers how it ended: completed or cancelled."""

    state: str

    def initial_state(self) -> None:
        self.state = "new"

    @classmethod
    def request(cls, transfer_id: str, source: str, target: str, amount: int) -> "Transfer":
        if source == target:
            raise SameAccount(f"account {source} cannot transfer to itself")
        transfer = cls(transfer_id)
        transfer.record(TransferRequested(source=source, target=target, amount=amount))
        return transfer

    def complete(self) -> None:
        if self.state == "requested":
            self.record(TransferCompleted())

    def cancel(self, reason: str) -> None:
        if self.state == "requested":
            self.record(TransferCancelled(reason=reason))

    @applies
    def _requested(self, event: TransferRequested) -> None:
        self.state = "requested"

    @applies
    def _completed(self, event: TransferCompleted) -> None:
        self.state = "completed"

    @applies
    def _cancelled(self, event: TransferCancelled) -> None:
        self.state = "cancelled"


# The process manager: what happens next, and what happens when an account says no.
transfers = ProcessManager("transfers")


@transfers.on
def requested(event: TransferRequested, context: EventContext) -> Iterable[Command]:
    yield SendMoney(
        account_id=event.source,
        transfer_id=context.aggregate_id,
        target=event.target,
        amount=event.amount,
    )


@transfers.on
def sent(event: MoneySent, context: EventContext) -> Iterable[Command]:
    yield ReceiveMoney(
        account_id=event.target,
        transfer_id=event.transfer_id,
        source=context.aggregate_id,
        amount=event.amount,
    )


@transfers.on
def received(event: MoneyReceived, context: EventContext) -> Iterable[Command]:
    yield CompleteTransfer(transfer_id=event.transfer_id)


@transfers.on_rejection
def source_refused(command: SendMoney, rejection: Rejection) -> Iterable[Command]:
    yield CancelTransfer(transfer_id=command.transfer_id, reason=rejection.sentence)


@transfers.on_rejection
def target_refused(command: ReceiveMoney, rejection: Rejection) -> Iterable[Command]:
    yield ReturnMoney(
        account_id=command.source,
        transfer_id=command.transfer_id,
        amount=command.amount,
        reason=rejection.sentence,
    )


@transfers.on
def returned(event: MoneyReturned, context: EventContext) -> Iterable[Command]:
    yield CancelTransfer(transfer_id=event.transfer_id, reason=event.reason)
