"""Topics by their names at the broker, with the types in them."""

from headrace import App
from headrace.catalogue.topics import topics_of


def test_a_topic_has_its_types_and_its_direction(shop: App) -> None:
    assert [
        (each.address, each.action, [one.__name__ for one in each.types])
        for each in topics_of(shop.definition)
    ] == [
        ("shop.commands", "receive", ["Sell"]),
        ("shop.commands.slow", "receive", ["Recount"]),
        ("shop.events", "send", ["Counted", "Sold"]),
        ("shop.messages", "send", ["Told"]),
    ]
