"""The page of operations: everything in it, nothing from elsewhere, no text taken for markup."""

from headrace.gateway.catalogue import Catalogue
from headrace.gateway.openapi.document import document
from headrace.gateway.overview import POLICY, page
from headrace.gateway.settings import GatewaySettings
from samples.bank import app

DOCUMENT = document(
    title="<b>bank</b>",
    catalogue=Catalogue(app.command_types),
    projections=app.projections,
    settings=GatewaySettings(),
)


def test_every_operation_is_on_the_page() -> None:
    shown = page(DOCUMENT)
    for path, methods in DOCUMENT["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in shown


def test_the_page_needs_no_other_host_and_no_script() -> None:
    shown = page(DOCUMENT)
    assert "://" not in shown
    assert "<script" not in shown
    assert POLICY.startswith("default-src 'none'")


def test_text_is_never_taken_for_markup() -> None:
    assert "<h1>&lt;b&gt;bank&lt;/b&gt;</h1>" in page(DOCUMENT)
