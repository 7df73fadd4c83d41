"""A plan travels, and an executor finds the application that it names."""

import pickle
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DefinitionError
from headrace.spark.executor.plan import load_application, module_folder


def test_a_plan_survives_pickling(make_plan: Any, topic: Any, ledger: Any) -> None:
    topic.publish(ledger.stream("a", 1, ledger.Ended()))
    plan = make_plan("accounts", topic.slices())
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_an_application_is_found_by_its_path(ledger: Any) -> None:
    assert load_application(ledger.path, "nowhere") is ledger.app
    assert "nowhere" not in sys.path


def test_a_module_that_is_not_installed_is_found_in_the_drivers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far_app.py").write_text(
        "from headrace.app import App\napp = App('far')\n", encoding="utf-8"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_application("far_app:app", str(tmp_path)).name == "far"
    monkeypatch.delitem(sys.modules, "far_app")
    with pytest.raises(DefinitionError, match="no module 'near_app'"):
        load_application("near_app:app", str(tmp_path))


def test_the_folder_of_a_module_is_where_its_top_level_package_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "shop" / "inner"
    package.mkdir(parents=True)
    (package / "main.py").touch()
    (tmp_path / "single.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for path in ("shop.inner.main:app", "single:app"):
        import_module(path.partition(":")[0])
        assert module_folder(path) == str(tmp_path.resolve())
    for module in [name for name in sys.modules if name.partition(".")[0] in {"shop", "single"}]:
        monkeypatch.delitem(sys.modules, module)
