"""Files that come with the package: where they are, and what is said where they are not."""

from pathlib import Path

import pytest

from headrace._runtime.shipped import shipped_folder
from headrace.errors import DefinitionError


def found(package: Path) -> Path:
    return shipped_folder("_shipped", "beside", mark="here/mark.txt", package=package)


def make(folder: Path) -> Path:
    (folder / "here").mkdir(parents=True)
    (folder / "here" / "mark.txt").touch()
    return folder


def test_files_are_found_within_an_installed_package(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "headrace"
    within = make(package / "_shipped")
    assert found(package) == within


def test_files_are_found_in_a_checkout(tmp_path: Path) -> None:
    beside = make(tmp_path / "beside")
    assert found(tmp_path / "framework" / "headrace") == beside


def test_an_installation_that_is_not_whole_says_so(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"has no here/mark\.txt; install headrace again"):
        found(tmp_path / "framework" / "headrace")


def test_the_running_package_has_all_of_them() -> None:
    for mark in (
        "samples/bank/__init__.py",
        "seeds/bank/accounts.csv",
        "samples/templates/shop/README.md",
    ):
        assert shipped_folder("_shipped", "", mark=mark).is_dir()
