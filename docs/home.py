"""
Writes where the project lives into what is built: its addresses, and absolute links in the README.

    HEADRACE_HOME=https://forge.example/team/headrace python -m build

The package index shows README.md far from the files that it links to. With HEADRACE_HOME each link leads to the
file at that home, and the metadata has its addresses. The workflow `release` sets it to the repository it runs in, so a fork's
wheel leads to the fork. Without it, as in every checkout, links stay as they are and no address is claimed.

Called by hatchling whenever it builds metadata.
"""

import os
import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["HomeHook", "absolute", "addresses"]

_RELATIVE_LINK: Final = re.compile(r"\]\((?!\w+:|#|/)([^)\s]+)\)")
# Forges show a file of the default branch under this path: GitHub, GitLab, Gitea and Forgejo lead there from it.
_FILES: Final = "blob/HEAD"


def absolute(text: str, home: str) -> str:
    """Returns Markdown whose relative links lead to files at a home."""
    return _RELATIVE_LINK.sub(lambda found: f"]({home}/{_FILES}/{found.group(1)})", text)


def addresses(home: str) -> dict[str, str]:
    """Returns the metadata's addresses by their labels."""
    return {
        "Homepage": home,
        "Documentation": f"{home}/{_FILES}/docs/index.md",
        "Changelog": f"{home}/{_FILES}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


class HomeHook(MetadataHookInterface):
    """Fills in `readme` and `urls`, which pyproject.toml leaves open."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Raises ValueError if HEADRACE_HOME is no https address."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        home = os.environ.get("HEADRACE_HOME", "").rstrip("/")
        if home:
            if not home.startswith("https://"):
                raise ValueError(f"HEADRACE_HOME is {home!r}; set it to an https:// address")
            text = absolute(text, home)
            metadata["urls"] = addresses(home)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
