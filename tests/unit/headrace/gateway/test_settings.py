"""The gateway's limits: checked once, each with a reason, and the same in its document."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.settings import GatewaySettings

ROOT = Path(__file__).parents[4]


def test_the_gateway_listens_on_this_machine_alone_by_default() -> None:
    assert GatewaySettings().host == "127.0.0.1"


@pytest.mark.parametrize(
    "wrong", [{"wait_ms": 5, "wait_ms_max": 4}, {"page_rows": 9, "page_rows_max": 8}]
)
def test_a_default_beyond_its_own_maximum_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="_max, which is"):
        GatewaySettings(**wrong)


@pytest.mark.parametrize("wrong", [{"port": 65_536}, {"requests_max": 0}, {"unknown": 1}])
def test_values_out_of_range_and_unknown_ones_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GatewaySettings(**wrong)


def test_the_document_has_every_setting_with_its_default_and_reason() -> None:
    limits = runpy.run_path(str(ROOT / "docs" / "limits.py"))
    table = limits["_table"]("headrace.gateway.settings", "GatewaySettings", "a gateway")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) == len(GatewaySettings.model_fields)
    assert [row for row in rows if re.search(r"\|\s+\|$", row)] == []
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    assert [row for row in rows if row not in page] == []


ISSUED = {
    "jwks_url": "https://login.example/keys",
    "jwt_issuer": "https://login.example/",
    "jwt_audience": ("bank",),
}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"jwt_issuer": ""}, "needs jwt_issuer and jwt_audience"), ({"jwt_audience": ()}, "needs jwt_"),
     ({"jwt_algorithms": ()}, "at least one"), ({"jwks_url": None}, "need jwks_url"),
     ({"jwks_url": "http://login.example/keys"}, "write https://HOST/PATH"),
     ({"jwks_url": "file:///etc/passwd"}, "write https://HOST/PATH"),
     ({"jwks_url": "https://"}, "write https://HOST/PATH"),
     ({"jwt_algorithms": ("none",)}, "jwt_algorithms"), ({"jwt_algorithms": ("HS256",)}, "'RS256'"),
     ({"jwt_leeway_ms": 300_001}, "jwt_leeway_ms")],
)  # fmt: skip
def test_an_issuer_that_cannot_be_believed_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        GatewaySettings(**(ISSUED | wrong))


def test_an_issuer_on_this_machine_needs_no_tls() -> None:
    for host in ("127.0.0.1:8000", "[::1]", "localhost"):
        settings = GatewaySettings(**(ISSUED | {"jwks_url": f"http://{host}/keys"}))
        assert settings.asks_for_tokens
    assert not GatewaySettings().asks_for_tokens
