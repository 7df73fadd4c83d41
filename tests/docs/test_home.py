"""What is built leads to the project's home: addresses, and links of the README that work on other pages."""

import re
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

HOME = "https://forge.example/team/headrace"
LINK = re.compile(r"\]\(([^)]+)\)")


def metadata(root: Path) -> ProjectMetadata:
    return ProjectMetadata(str(root), PluginManager())


def test_addresses_and_links_lead_home(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", f"{HOME}/")
    core = metadata(root).core
    assert core.urls["Homepage"] == HOME
    links = LINK.findall(core.readme)
    assert len(links) > 10
    ours = [link for link in links if link.startswith(HOME)]
    assert [link for link in links if not re.match(r"\w+://|#", link)] == []
    for link in [*ours, core.urls["Documentation"], core.urls["Changelog"]]:
        assert (root / link.removeprefix(f"{HOME}/blob/HEAD/").partition("#")[0]).exists()


def test_a_checkout_claims_no_address(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    core = metadata(root).core
    assert core.urls == {}
    assert core.readme == (root / "README.md").read_text(encoding="utf-8")


def test_a_home_that_is_no_address_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", "team/headrace")
    with pytest.raises(ValueError, match="set it to an https:// address"):
        assert metadata(root).core.urls
