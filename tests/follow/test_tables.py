"""Tables: Lightning, Keras, ultralytics, and any other with a step."""

from __future__ import annotations

import math

import pytest
from tests.follow.helpers import LOGS, items_of, rows_of

from trainvitals.follow.base import LIKELY, NO, SURE, Facts, Row
from trainvitals.follow.formats.tables import Table

FOLDER = LOGS / "table"


def parse(*lines):
    """Return what a table says."""
    parser = Table().parser()
    return [item for line in lines for item in parser.feed(line)]


def test_lightning():
    """Blanks are missing values; a row of the validation is no step of the training."""
    path = FOLDER / "lightning.csv"

    assert [(row.step, row.values) for row in rows_of(path)] == [
        (24, {"epoch": 0.0, "loss": 2.3106}),
        (49, {"epoch": 0.0, "loss": 2.2741}),
        (49, {"epoch": 0.0, "train_loss_epoch": 2.2924}),
        (74, {"epoch": 1.0, "loss": 2.1985}),
    ]
    assert [(row.step, row.values) for row in rows_of(path, "validation")] == [(49, {"loss": 2.253, "acc": 0.172})]


def test_keras():
    """The epoch is the step, and each row is a step and an evaluation."""
    path = FOLDER / "keras.csv"
    rows, results = rows_of(path), rows_of(path, "validation")

    assert [(row.step, row.values["accuracy"]) for row in rows] == [(0, 0.5125), (1, 0.601), (2, 0.6444)]
    assert rows[1].values["loss"] == 1.1163
    assert math.isnan(rows[2].values["loss"])
    assert results[2].values == {"accuracy": 0.612, "loss": math.inf}


def test_without_a_column_for_the_step():
    """The rows of a table with a loss are numbered from 0."""
    rows = rows_of(FOLDER / "keras_without_epoch.csv")

    assert [(row.step, row.values) for row in rows] == [
        (0, {"loss": 0.7015, "accuracy": 0.49}),
        (1, {"loss": 0.6842, "accuracy": 0.55}),
    ]


def test_ultralytics():
    """The loss is the sum of its parts; metrics are results of the validation; the first rate is the rate."""
    path = FOLDER / "ultralytics.csv"
    row = rows_of(path)[1]

    assert row.step == 1
    assert row.values == {
        "train/box_loss": 0.0625,
        "train/obj_loss": 0.0235,
        "train/cls_loss": 0.014,
        "loss": pytest.approx(0.1),
        "learning_rate": 0.0065,
        "x/lr1": 0.0401,
    }
    assert rows_of(path, "validation")[0].values == {"precision": 0.513, "mAP_0.5": 0.214, "box_loss": 0.0701}
    assert Facts(framework="ultralytics") in items_of(path)


def test_tabs_and_times():
    """Tabs part as well as commas do; a large time is wall time."""
    assert rows_of(FOLDER / "megatron.tsv") == [
        Row(3, {"learning_rate": 0.0001, "loss": 5.25}, 1739261642.5),
        Row(6, {"learning_rate": 0.0002, "loss": 5.0}, 1739261648.0),
    ]


def test_seconds_since_the_start():
    """A small time is what elapsed."""
    assert parse("step,time,loss", "1,12.5,3.0") == [Row(1, {"loss": 3.0, "elapsed_seconds": 12.5})]


def test_a_second_header_begins_another_run():
    """Runs that are written one behind the other are attempts, even if their columns differ."""
    found = parse("step,loss,lr", "1,3.0,0.1", "2,2.5,0.1", "step,loss", "1,2.0")

    assert found[2:] == [Facts(started=0.0), Row(1, {"loss": 2.0})]


@pytest.mark.parametrize("line", ["", "<<<<<<< HEAD", "3,2.0", "3,2.0,0.1,9", "x,2.0,0.1", "nan,2.0,0.1", "3,,"])
def test_lines_that_make_no_sense_cost_themselves(line):
    """Marks of a merge, rows that are too short or too long, and steps that are none are passed over."""
    found = parse("step,loss,lr", "1,3.0,0.1", line, "4,2.0,0.1")

    assert [item.step for item in found] == [1, 4]


def test_quotes():
    """Cells may be quoted."""
    assert parse('"step","loss"', '"7","2.5"') == [Row(7, {"loss": 2.5})]


@pytest.mark.parametrize(
    ("head", "path", "sure"),
    [
        (b"step,loss\n1,2.5\n", "x", SURE),
        (b"step,loss\n", "x.csv", LIKELY),
        (b"step,loss\n", "x.log", NO),
        (b"name,loss_kind\nx,1\n", "x.csv", NO),
        (b"timestamp,gpu_index,power_W\n2025-01-01T00:00:00Z,0, 387.2\n", "x.csv", NO),
        (b"1,2,3\n4,5,6\n", "x.csv", NO),
        (b"hello, world\n", "x.csv", NO),
    ],
)
def test_what_is_a_table(head, path, sure):
    """A header with a step or a loss, and a row below it; a header alone where the name says that more comes."""
    assert Table().sniff(head, path) == sure


def test_commas_for_points():
    """Where the cells are not parted by commas: a German Excel writes them so, with points between thousands."""
    lines = ("step;loss;lr", "100;0,5320;0,001", "1100;1.024,5;0,002", "1200;0.25;5e-4")

    assert [(row.step, row.values) for row in parse(*lines)] == [
        (100, {"loss": 0.532, "learning_rate": 0.001}),
        (1100, {"loss": 1024.5, "learning_rate": 0.002}),
        (1200, {"loss": 0.25, "learning_rate": 5e-4}),
    ]
    parser = Table().parser()
    items = [*parser.feed(lines[0]), *parser.feed(lines[1])]
    assert [(row.step, row.values) for rows in parser.batch(["200;0,5;0,25", "300;0,125;0,75"]) for row in rows] == [
        (200, {"loss": 0.5, "learning_rate": 0.25}),
        (300, {"loss": 0.125, "learning_rate": 0.75}),
    ]
    assert len(items) == 1
    assert [row.values for row in parse("step\tloss\tval_loss", "7\t0,75\t0,875")] == [{"loss": 0.75}, {"loss": 0.875}]


def test_a_comma_that_parts_cells_is_none_of_a_number():
    """A row with too many cells is no row."""
    assert parse("step,loss", "100,0,5320") == []


def test_comments_before_the_header():
    """They are passed over, wherever they stand."""
    rows = parse("# made by train.py, 3 nodes", "# seed: 7", "step,loss", "5,2.5", "# a pause", "6,2.25")

    assert [(row.step, row.values) for row in rows] == [(5, {"loss": 2.5}), (6, {"loss": 2.25})]


def test_a_header_in_a_comment():
    """As numpy.savetxt writes it; the same one again begins another run."""
    rows = parse("# written 2026", "# step loss", "# step,loss", "5,2.5", "6,2.25", "# step,loss", "1,2.0")

    assert [(5, 2.5), (6, 2.25), None, (1, 2.0)] == [
        (row.step, row.values["loss"]) if isinstance(row, Row) else None for row in rows
    ]


@pytest.mark.parametrize(
    ("head", "sure"),
    [
        (b"step;loss;lr\n100;0,5320;0,001\n200;0,5;0,001\n", SURE),
        (b"# a\n# b\nstep,loss\n1,2.5\n2,2.25\n", SURE),
        (b"# step,loss\n1,2.5\n2,2.25\n", SURE),
        (b"# a, loss\n# step, loss and more\nprint(1)\n", NO),
        (b"# step,loss\n", NO),
        (b"#\n" * 200 + b"step,loss\n1,2.5\n", NO),
    ],
)
def test_what_is_a_table_with_comments_or_commas(head, sure):
    """Comments alone are none."""
    assert Table().sniff(head, "x") == sure
