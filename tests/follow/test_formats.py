"""The table of formats: what it says of a format before it is imported, and that few are."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainvitals.follow.base import FileFormat
from trainvitals.follow.formats import FORMATS


@pytest.mark.parametrize("row", FORMATS.rows, ids=lambda row: row.name)
def test_a_row_says_what_its_format_is(row):
    """Name, folder and how sure it may be are those of the class; and it is made once."""
    known = FORMATS.named(row.name)

    assert (row.name, row.surest) == (known.name, known.surest)
    assert row.folder == (isinstance(known, FileFormat) and known.folder)
    assert known is FORMATS.make(row)


def test_a_table_needs_no_format_of_a_program():
    """To find a CSV, neither the formats of frameworks are imported nor the libraries of databases."""
    code = """
import sys
from trainvitals.follow.formats import choose
found, sure = choose(b"step,loss,lr\\n1,2.5,0.1\\n2,2.4,0.1\\n", "metrics.csv")
names = [name.rpartition(".")[2] for name in sys.modules if name.startswith("trainvitals.follow.formats.")]
print(found.name, *(name for name in ("megatron", "mlflow", "keras", "wandb") if name in names), "yaml" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "table False" == done.stdout.strip()


def test_a_name_that_is_none_is_none():
    """There is no format of a name that nobody gave."""
    assert FORMATS.named("no such") is None
