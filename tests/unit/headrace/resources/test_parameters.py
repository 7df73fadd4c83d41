"""Further parameters of handlers: found by type, or refused with a sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import DefinitionError
from headrace.resources.parameters import bound_to, wanted_by


class Mailer:
    """A client of some kind."""


class Prices:
    """A value."""


async def plain(event: str, context: str) -> None: ...


async def mailing(event: str, context: str, mailer: Mailer) -> Mailer:
    return mailer


def test_a_handler_without_further_parameters_stays_itself_and_costs_nothing() -> None:
    assert bound_to(plain, {Mailer: 1}) is plain


async def test_a_parameter_gets_the_value_of_its_type() -> None:
    mailer = Mailer()
    bound = bound_to(mailing, {Mailer: mailer, Prices: Prices()})
    assert await bound("event", "context") is mailer
    assert bound.__qualname__ == mailing.__qualname__


def test_an_unknown_type_is_named_with_handler_parameter_and_what_there_is() -> None:
    with pytest.raises(
        DefinitionError,
        match=r"^mailing: nothing provides its parameter mailer: Mailer; provided are Prices\. Write an"
        r" @app\.resource that yields one, or app\.provide\(Mailer, …\)$",
    ):
        bound_to(mailing, {Prices: Prices()})


async def unannotated(event: str, context: str, mailer) -> None: ...


async def many(event: str, context: str, *mailers: Mailer) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [(unannotated, "annotate its parameter mailer"), (many, "many takes mailers without")],
)
def test_a_parameter_that_cannot_be_found_by_type_is_refused(
    handler: Callable[..., Any], says: str
) -> None:
    with pytest.raises(DefinitionError, match=says):
        wanted_by(handler)
