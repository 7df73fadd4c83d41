"""The read model: a row for each product."""

from headrace import EventContext, Projection
from pydantic import BaseModel

from shop.products import ProductIntroduced, Received, Sold

__all__ = ["Stock", "stock"]


class Stock(BaseModel):
    """A product, as it is shown."""

    product_id: str
    title: str
    pieces: int = 0
    sold: int = 0


stock = Projection("stock", row=Stock, key="product_id")


@stock.fold
def introduced(row: Stock | None, event: ProductIntroduced, context: EventContext) -> Stock:
    """A new row."""
    return Stock(product_id=context.aggregate_id, title=event.title)


@stock.fold
def received(row: Stock, event: Received, context: EventContext) -> Stock:
    """More pieces."""
    return row.model_copy(update={"pieces": row.pieces + event.pieces})


@stock.fold
def sold(row: Stock, event: Sold, context: EventContext) -> Stock:
    """Fewer pieces."""
    return row.model_copy(update={"pieces": event.left, "sold": row.sold + event.pieces})
