"""What a product decides."""

from headrace.testing.scenario import scenario

from shop import app
from shop.products import Introduce, OutOfStock, Product, ProductIntroduced, Received, Sell, Sold

TEA = ProductIntroduced(title="Green tea")


def test_a_new_product_is_offered() -> None:
    scenario(Product, "tea", app=app).when(Introduce(product_id="tea", title="Green tea")).then(TEA)


def test_pieces_in_stock_are_sold() -> None:
    in_stock = scenario(Product, "tea", app=app).given(TEA, Received(pieces=10))
    in_stock.when(Sell(product_id="tea", pieces=4)).then(Sold(pieces=4, left=6))


def test_more_than_there_is_cannot_be_sold() -> None:
    in_stock = scenario(Product, "tea", app=app).given(TEA, Received(pieces=3))
    in_stock.when(Sell(product_id="tea", pieces=4)).then_raises(OutOfStock)
