"""`headrace catalog`: an application in three forms."""

import json

import pytest

from headrace.cli.application.catalog import CatalogFormat, catalog
from headrace.errors import DefinitionError


@pytest.mark.parametrize(
    ("wanted", "begins"),
    [
        (CatalogFormat.MARKDOWN, "# bank\n"),
        (CatalogFormat.HTML, "<!doctype html>\n"),
        (CatalogFormat.ASYNCAPI, "{\n"),
    ],
)
def test_a_catalogue_is_printed_in_the_form_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], wanted: CatalogFormat, begins: str
) -> None:
    catalog("samples.bank:app", format_=wanted)
    output = capsys.readouterr().out
    assert output.startswith(begins)
    if wanted is CatalogFormat.ASYNCAPI:
        assert "bank.events" in json.loads(output)["channels"]


def test_an_unknown_application_is_one_sentence() -> None:
    with pytest.raises(DefinitionError, match="there is no module 'nowhere'"):
        catalog("nowhere:app")
