import inspect
import re

import pytest

from headrace_mq import errors
from headrace_mq.errors import BrokerError, MessageQueueError, ResponseCode, error_for

DRAWN = re.compile(r"^    (?P<indent>[│ ]*)(?:├──|└──)? ?(?P<name>[A-Z]\w+)(?P<rest>.*)$")


def drawn_tree() -> dict[str, tuple[str | None, bool]]:
    """Name -> (parent, fatal) as the module's docstring draws it."""
    parents: list[tuple[int, str]] = []
    tree: dict[str, tuple[str | None, bool]] = {}
    for line in inspect.getdoc(errors).splitlines():
        match = DRAWN.match("    " + line) if not line.startswith("    ") else DRAWN.match(line)
        if match is None or (not tree and match["name"] != "MessageQueueError"):
            continue
        if tree and not ("├──" in line or "└──" in line):
            break
        depth = max(line.find("├──"), line.find("└──"))
        while parents and parents[-1][0] >= depth:
            parents.pop()
        parent = parents[-1][1] if parents else None
        tree[match["name"]] = (parent, "fatal" in match["rest"])
        parents.append((depth, match["name"]))
    return tree


def all_subclasses(kind: type) -> list[type]:
    return [kind, *(found for child in kind.__subclasses__() for found in all_subclasses(child))]


OURS = [kind for kind in all_subclasses(MessageQueueError) if kind.__module__ == errors.__name__]


def test_the_drawn_tree_equals_the_classes() -> None:
    expected = {
        kind.__name__: (
            None if kind is MessageQueueError else kind.__bases__[0].__name__,
            bool(getattr(kind, "fatal", False)),
        )
        for kind in OURS
    }
    assert drawn_tree() == expected


def test_every_error_is_exported() -> None:
    assert {kind.__name__ for kind in OURS} <= set(errors.__all__)


@pytest.mark.parametrize(
    "code",
    [code for code in ResponseCode if code not in {ResponseCode.OK, ResponseCode.INTERNAL_ERROR}],
)
def test_every_response_code_has_exactly_one_exception_and_back(code: ResponseCode) -> None:
    kinds = [kind for kind in OURS if issubclass(kind, BrokerError) and kind.code == code]
    assert len(kinds) == 1
    error = error_for(code, "do this")
    assert type(error) is kinds[0]
    assert error.code == code
    assert str(error) == "do this"


def test_an_internal_error_comes_back_as_the_plain_broker_error() -> None:
    assert type(error_for(ResponseCode.INTERNAL_ERROR, "see the log")) is BrokerError


def test_a_code_of_a_newer_broker_keeps_its_sentence_and_names_the_code() -> None:
    error = error_for(999, "do that")
    assert type(error) is BrokerError
    assert "do that" in str(error)
    assert "999" in str(error)
