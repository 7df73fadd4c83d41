import json
from typing import Any

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.spark.lag import Lag, lag


class Query:
    def __init__(self, *sources: tuple[Any, Any]) -> None:
        told = [{"endOffset": end, "latestOffset": latest} for end, latest in sources]
        self.lastProgress: Any = {"sources": told}


@pytest.mark.parametrize("form", [dict, json.dumps])
def test_messages_that_were_there_and_not_read_are_behind(form: Any) -> None:
    read = {"orders": {"0": 5, "1": 7}}
    there = {"orders": {"0": 9, "1": 7, "2": 3}}
    assert lag(Query((form(read), form(there)))) == Lag(
        messages=7,
        queues={QueueRef("orders", 0): 4, QueueRef("orders", 1): 0, QueueRef("orders", 2): 3},
    )


def test_before_the_first_batch_nothing_is_known() -> None:
    query = Query()
    query.lastProgress = None
    assert lag(query) is None


def test_sources_of_another_kind_and_places_that_are_not_known_are_passed_over() -> None:
    query = Query((12, 30), (None, None), ("{}", '{"orders": {"0": 2}}'), ("x", "[1]"))
    assert lag(query) == Lag(messages=2, queues={QueueRef("orders", 0): 2})


def test_a_queue_that_was_made_again_is_not_behind() -> None:
    query = Query(({"orders": {"0": 9}}, {"orders": {"0": 2}}))
    assert lag(query) == Lag(messages=0, queues={QueueRef("orders", 0): 0})
