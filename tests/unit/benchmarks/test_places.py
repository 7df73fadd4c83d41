"""Folders that benchmarks are told to write to."""

import argparse
from pathlib import Path

import pytest

from benchmarks.places import made_folder


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    assert made_folder(str(tmp_path / "a" / "b")).is_dir()
    assert made_folder(str(tmp_path)) == tmp_path


def test_a_folder_that_cannot_be_made_is_told_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match=r"file cannot be made \(File exists\)"):
        made_folder(str(tmp_path / "file"))
