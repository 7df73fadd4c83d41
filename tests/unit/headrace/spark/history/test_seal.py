"""What a folder must be to be sealed and verified; the work itself is tested over a real broker."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headrace import App
from headrace.errors import ProjectionError
from headrace.spark.archive import ExportedPart, finish_part, writing_part
from headrace.spark.history.proof import StoreProof
from headrace.spark.history.seal import Sealing, Verified, _check, sealing, verify_history


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("unit_vault")
    module.app = App("vault")  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "unit_vault", module)
    return "unit_vault:app"


def write_part(folder: Path, topic: str = "vault.events", **more: object) -> ExportedPart:
    with writing_part(folder) as place:
        part = ExportedPart(number=1, app="a:app", topic=topic, start={}, end={}, **more)  # type: ignore[arg-type]  # of the test alone
        finish_part(place, part)
    return part


def test_one_process_seals_a_folder_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(ProjectionError, match="another process seals")
    with sealing(tmp_path / "new"), refused, sealing(tmp_path / "new"):
        raise AssertionError
    with sealing(tmp_path / "new"):
        pass


def test_nothing_to_verify_and_another_topic_are_mistakes_and_a_broken_part_differs(
    app: str, tmp_path: Path
) -> None:
    url = "sqlite:///unused.db"
    with pytest.raises(ProjectionError, match="headrace history seal"):
        verify_history(app, tmp_path, event_store_url=url)
    write_part(tmp_path, "other.events")
    with pytest.raises(ProjectionError, match=r"events of other\.events, not of vault\.events"):
        verify_history(app, tmp_path, event_store_url=url)
    (tmp_path / "export-000001" / "export.json").write_bytes(b"{")
    found = verify_history(app, tmp_path, event_store_url=url)
    assert "is no exported part" in found.differences[0]


def test_parts_that_no_store_vouched_for_or_without_digests_are_not_sealed(tmp_path: Path) -> None:
    for more, why in (({}, "--unsealed"), ({"vouched": True}, "has no digests")):
        folder = tmp_path / why.strip("-")
        sentences, proof = _check(folder, write_part(folder, **more), StoreProof)  # type: ignore[arg-type]  # not asked
        assert (why in sentences[0], proof) == (True, None)


def test_outcomes_are_one_line_of_json() -> None:
    assert json.loads(Sealing(parts=3, differences=["x"]).to_json())["differences"] == ["x"]
    assert json.loads(Verified(parts=3).to_json())["parts"] == 3
