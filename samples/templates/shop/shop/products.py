"""What may be asked of a product, what may happen to it, and what it decides."""

from headrace import Aggregate, AggregateId, Command, DomainError, DomainEvent, applies

__all__ = [
    "Introduce",
    "OutOfStock",
    "Product",
    "ProductIntroduced",
    "Receive",
    "Received",
    "Sell",
    "Sold",
]


class Introduce(Command):
    """Offer a new product."""

    product_id: AggregateId
    title: str


class Receive(Command):
    """Put pieces into stock."""

    product_id: AggregateId
    pieces: int


class Sell(Command):
    """Take pieces out of stock; the result says how many are left."""

    product_id: AggregateId
    pieces: int


class ProductIntroduced(DomainEvent):
    """A new product is offered."""

    title: str


class Received(DomainEvent):
    """Pieces were put into stock."""

    pieces: int


class Sold(DomainEvent):
    """Pieces were sold, and so many are left."""

    pieces: int
    left: int


class OutOfStock(DomainError):
    """More pieces were asked for than there are."""


class Product(Aggregate):
    """Decides in its methods, and changes in its @applies methods alone."""

    def initial_state(self) -> None:
        """A product begins without pieces."""
        self.pieces = 0

    def introduce(self, title: str) -> None:
        """Offers the product."""
        self.record(ProductIntroduced(title=title))

    def receive(self, pieces: int) -> None:
        """Puts pieces into stock."""
        self.record(Received(pieces=pieces))

    def sell(self, pieces: int) -> None:
        """Takes pieces out of stock.

        Raises:
            OutOfStock: there are fewer.
        """
        if pieces > self.pieces:
            raise OutOfStock(f"{self.pieces} pieces of {self.id} are left, not {pieces}")
        self.record(Sold(pieces=pieces, left=self.pieces - pieces))

    @applies
    def _introduced(self, event: ProductIntroduced) -> None:
        pass

    @applies
    def _received(self, event: Received) -> None:
        self.pieces += event.pieces

    @applies
    def _sold(self, event: Sold) -> None:
        self.pieces = event.left
