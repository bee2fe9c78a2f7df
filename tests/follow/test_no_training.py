"""Texts, tables and records that speak of steps, epochs and losses, and are no log of a training."""

from __future__ import annotations

import pytest

from trainvitals.follow.evidence import is_known
from trainvitals.follow.formats import choose

NONE = {
    "prose": "In step 3 of the recipe, a loss of 0.5 kg of flour is noted; at epoch 2 the losses were 3.\n"
    "In step 4 of the recipe, a loss of 0.7 kg of flour is noted.\n",
    "source": 'for step, batch in enumerate(loader):\n    print(f"step {step} loss {loss.item():.4f}")\nepochs = 10\n'
    "loss = 0.0\nstep = 0\nmax_steps = 100\n",
    "settings": "train:\n  epoch: 100\n  loss_weight: 0.5\nval:\n  epoch: 3\n  loss_weight: 0.7\n",
    "pip": "Collecting torch==2.1.0\n     ---- 670.2/670.2 MB 2.1 MB/s eta 0:00:00\n",
    "docker build": "Step 1/12 : FROM debian:12 # loss 0.1\nStep 2/12 : RUN pip install focal_loss==0.0.7\n"
    "Step 3/12 : RUN pip install loss 2\n",
    "kernel": "[  123.456789] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234\n[  124.456789] tcp: packet loss 3 step 5\n",
    "ping": "5 packets transmitted, 5 received, 0% packet loss, time 4004ms\n" * 3,
    "web server": "".join(f'10.0.0.1 - - "GET /step/{i}?loss=0.5 HTTP/1.1" 200 612\n' for i in range(1, 5)),
    "ids": "1 5\n2 6\n3 7\n4 9\n",
    "vocabulary": "100 -1\n101 -2\n102 -3\n103 -4\n",
    "prices": "date,price,volume\n2025-01-01,12.1,1000\n2025-01-02,12.2,1100\n",
    "epochs of Unix": "epoch,price\n1700000000,12.1\n1700000060,12.2\n",
    "epochs of anything": "epoch,temperature,humidity\n1,20.1,50\n2,20.2,51\n",
    "steps of a day": "date,steps,calories\n2025-01-01,8043,2100\n2025-01-02,12043,1900\n",
    "updates of records": "id,name,update,amount\n1,foo,1,2.1\n2,bar,3,2.2\n",
    "recipe": 'step,instruction,minutes\n1,"Mix it",5\n2,"Bake it",35\n',
    "list of files": "file\tformat\tstep\tbytes\na.log\tone\t\t123\nb.log\ttwo\t300\t223\n",
    "one step": "step,amount\n5,1\n5,2\n5,3\n",
    "package": '{\n  "name": "x",\n  "version": "1.0.0",\n  "steps": 5\n}\n',
    "settings in JSON": '{"epochs": 10, "steps": 100, "lr": 0.001, "loss": "mse", "batch_size": 3}\n',
    "words with numbers": '{"a": 1, "b": 2, "step": 334, "loss": 2231}\n',
    "data set": '{"id": 1, "text": "iteration 1", "step": 3, "score": 0.5}\n'
    '{"id": 2, "text": "b", "step": 4, "score": 1}\n',
    "rewards of sentences": '{"step": 1, "text": "First compute it", "reward": 0.7}\n'
    '{"step": 2, "text": "Then divide", "reward": 0.2}\n',
    "one iteration": '{"ts": 1, "iteration": 3, "msg": "foo"}\n{"ts": 2, "iteration": 3, "msg": "bar"}\n',
    "a service": '{"level": "info", "msg": "update 3", "update": 3, "took": 0.2}\n'
    '{"level": "info", "msg": "update 4", "update": 4, "took": 0.2}\n',
    "points": '{"x": [1, 2, 3], "y": [4, 5, 6]}\n',
    "vector": '{"embedding": [0.1, 0.2, 0.3]}\n',
    "printed settings": "{'model': 'gpt', 'epoch': 3, 'dropout': 0.1}\n",
    "markdown": "| Epoch | Loss |\n|---|---|\n| 1 | 0.5 |\n| 2 | 0.4 |\n",
    "arguments": "Namespace(epoch=10, loss='ce', lr=0.1, step=5)\nloss_scale ............ 4096\n",
    "tests": "tests/test_loss.py::test_step[1] PASSED [ 1%]\ntests/test_loss.py::test_step[2] PASSED [ 2%]\n",
}


@pytest.mark.parametrize("text", NONE.values(), ids=NONE.keys())
@pytest.mark.parametrize("ending", ["log", "csv", "jsonl"])
def test_nobody_knows_it(text, ending):
    """It is read for errors only, whatever it is called."""
    assert choose(text.encode(), f"file.{ending}")[0] is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("step,value\n0,10.5\n10,9.5\n", "table"),
        ("epoch,accuracy,val_accuracy\n0,0.5,0.4\n1,0.6,0.5\n", "table"),
        ("Step\tTraining Loss\tValidation Loss\n500\t0.5\tNo log\n1000\t0.4\t0.45\n", "table"),
        ('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.625}\n', "jsonl"),
        ('{"step": 1, "note": "x", "loss": 2.5}\n', "jsonl"),
        ('{"iteration": 1, "speed": 2}\n{"iteration": 2, "speed": 3}\n', "jsonl"),
        ('{"loss": [2.5, 2.25], "val_loss": [2.75, 2.5]}\n', "series-json"),
        ("1 2.5\n2 2.25\n3 2.125\n", "pairs"),
    ],
)
def test_what_is_one(text, name):
    """A step that rises beside numbers is enough, as is a known name beside any step."""
    found, _ = choose(text.encode(), "file")

    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [("val/acc", True), ("mAP50", True), ("eval_f1", True), ("lr-Adam", True), ("allure", False), ("racc", False)],
)
def test_known_names(name, expected):
    """Short names count as words only, not as parts of others."""
    assert is_known(name) is expected
