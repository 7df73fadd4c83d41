"""What the read model shows."""

from headrace.testing.history import History

from shop.products import ProductIntroduced, Received, Sold
from shop.stock import Stock, stock


def test_a_row_follows_its_product() -> None:
    history = History()
    history.happened("tea", ProductIntroduced(title="Green tea"))
    history.happened("tea", Received(pieces=10))
    history.happened("tea", Sold(pieces=4, left=6))
    assert history.rows(stock) == {
        "tea": Stock(product_id="tea", title="Green tea", pieces=6, sold=4)
    }
