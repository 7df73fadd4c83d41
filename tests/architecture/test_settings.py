"""A setting that nothing reads is a promise that nothing keeps."""

import ast
from typing import Any

import pytest

import headrace.settings
import headrace_mq.settings


def settings_of(package: str) -> set[str]:
    """Returns the names of all settings of a package."""
    if package == "headrace":
        return set(headrace.settings.Settings.model_fields)
    classes = [getattr(headrace_mq.settings, name) for name in headrace_mq.settings.__all__]
    return {field for settings in classes for field in settings.__struct_fields__}


@pytest.mark.parametrize("package", ["headrace", "headrace_mq"])
def test_every_setting_is_read_somewhere(package: str, modules: Any) -> None:
    read = {
        node.attr
        for module in modules
        if module.name.startswith(f"{package}.") and not module.name.endswith(".settings")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
    }
    assert settings_of(package) - read == set()
    assert len(settings_of(package)) > 10
