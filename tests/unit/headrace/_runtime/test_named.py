"""Parts by their names."""

import pytest

from headrace._runtime.named import bind_named, find_named
from headrace.errors import DefinitionError, ProjectionNotFound


def test_a_name_is_given_once() -> None:
    table: dict[str, object] = {}
    part = object()
    bind_named(table, "a", part, "parts")
    bind_named(table, "a", part, "parts")
    with pytest.raises(DefinitionError, match="two parts are named 'a'"):
        bind_named(table, "a", object(), "parts")
    assert find_named(table, "a", "no part", ProjectionNotFound) is part


@pytest.mark.parametrize(("table", "known"), [({}, "none"), ({"b": 1, "a": 2}, "a, b")])
def test_a_name_that_there_is_not_is_told_with_those_there_are(
    table: dict[str, int], known: str
) -> None:
    with pytest.raises(ProjectionNotFound, match=f"no part 'c'; it has: {known}"):
        find_named(table, "c", "no part", ProjectionNotFound)
