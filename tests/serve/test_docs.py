"""docs/web-configuration.md says what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import bcrypt
import pytest

from trainvitals.serve import auth, server
from trainvitals.serve.webconfig import Header, HttpServer, TlsServer, WebConfig, load

PAGE = (Path(__file__).parents[2] / "docs" / "web-configuration.md").read_text()


@pytest.fixture
def example(tmp_path):
    """The settings of the example."""
    file = tmp_path / "web.yml"
    file.write_text(PAGE.split("```yaml\n")[1].split("```")[0])
    return load(str(file))


def test_the_example_is_valid(example):
    """It uses every section, and its hash belongs to the password that the page names."""
    assert example.model_fields_set == set(WebConfig.model_fields)
    assert bcrypt.checkpw(b"change-me", example.basic_auth_users["prometheus"].encode())


@pytest.mark.parametrize("section", [TlsServer, HttpServer])
def test_every_key_has_its_row(section):
    """A key without a row in its table is one that nobody finds."""
    for key in section.model_fields:
        assert f"\n| `{key}` | " in PAGE, key


def test_every_header_is_named():
    """The list of headers is whole."""
    for name in get_args(Header):
        assert f"`{name}`" in PAGE


def test_the_limits_are_those_of_the_code():
    """The table of limits has the numbers of the constants."""
    assert f"| time for a TLS handshake, and then for the first request | {server.FIRST_REQUEST:.0f} s |" in PAGE
    assert f"| time between two requests of a connection | {server.KEEP_ALIVE} s |" in PAGE
    assert f"| connections | {server.CONNECTIONS}; " in PAGE
    assert f"| password checks that wait | {auth.WAITING}; " in PAGE
