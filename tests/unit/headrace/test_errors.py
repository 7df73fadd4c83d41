"""The error tree is as it is drawn."""

import inspect
import re

from headrace import errors


def drawn() -> dict[str, str]:
    """Returns each drawn error's parent, by indentation."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"(?P<indent>[ │├└─]*)(?P<name>[A-Z][A-Za-z]+)(  .*)?$", line)
        if found is None or not line.startswith("    "):
            continue
        indent = len(found["indent"])
        while path and path[-1][0] >= indent:
            path.pop()
        if path:
            parents[found["name"]] = path[-1][1]
        path.append((indent, found["name"]))
    return parents


def test_the_drawing_shows_every_error_under_its_parent():
    classes = {
        name: error.__bases__[0].__name__
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if error.__module__ == errors.__name__ and error is not errors.HeadraceError
    }
    assert drawn() == classes


def test_every_error_is_public_and_explained():
    classes = {
        name
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, Exception)
    }
    assert set(errors.__all__) == classes
    assert all(getattr(errors, name).__doc__ for name in classes)


def test_programmer_errors_are_not_in_the_family():
    assert not issubclass(errors.HeadraceError, (ValueError, TypeError))
