"""A framework's module is noticed when the program imports it, and only then."""

from __future__ import annotations

import importlib
import sys

import pytest

from trainvitals.frameworks.imports import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a module, not imported yet."""
    (tmp_path / "someframework").mkdir()
    (tmp_path / "someframework" / "__init__.py").write_text("value = 1\n")
    (tmp_path / "someframework" / "trainer.py").write_text("value = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "someframework"
    for name in [name for name in sys.modules if name.startswith("someframework")]:
        del sys.modules[name]


def test_it_is_called_after_the_import(package):
    """The module is whole when we see it, and it is not imported by us."""
    seen = []

    when_imported(f"{package}.trainer", lambda module: seen.append(module.value))
    assert f"{package}.trainer" not in sys.modules
    importlib.import_module(package)
    assert seen == []
    module = importlib.import_module(f"{package}.trainer")

    assert seen == [2]
    assert module is sys.modules[f"{package}.trainer"]


def test_it_is_called_at_once_for_what_is_there(package):
    """A module that the program has imported already is ready."""
    importlib.import_module(package)
    seen = []

    when_imported(package, lambda module: seen.append(module.value))

    assert seen == [1]


def test_several_may_wait(package):
    """Two adapters of one module are both called, each once."""
    seen = []
    when_imported(package, lambda _: seen.append("one"))
    when_imported(package, lambda _: seen.append("two"))

    importlib.import_module(package)
    importlib.reload(sys.modules[package])

    assert seen == ["one", "two"]


def test_an_error_of_ours_does_not_break_the_import(package):
    """The program gets its module."""

    def broken(_):
        raise RuntimeError("ours")

    when_imported(package, broken)

    assert importlib.import_module(package).value == 1


def test_an_import_that_fails_fails_as_before(tmp_path, monkeypatch):
    """The program sees its own exception, and a module that is missing is missing."""
    (tmp_path / "brokenframework.py").write_text("raise KeyError('theirs')\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    when_imported("brokenframework", seen.append)
    when_imported("missingframework", seen.append)

    with pytest.raises(KeyError, match="theirs"):
        importlib.import_module("brokenframework")
    with pytest.raises(ModuleNotFoundError, match="missingframework"):
        importlib.import_module("missingframework")
    assert seen == []
