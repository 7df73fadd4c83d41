"""What happens outside after an event; here a notice is printed."""

from headrace import EventContext

from shop.products import Sold

__all__ = ["notify"]


async def notify(event: Sold, context: EventContext) -> None:
    """Says that a product is sold out."""
    if event.left == 0:
        print(f"{context.aggregate_id} is sold out")
