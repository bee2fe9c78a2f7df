"""Logs as people have them: other versions of a program, launchers, collectors and systems in front of each line."""

from __future__ import annotations

import json
import math

import pytest
from tests.follow.helpers import items_of_pieces

from trainvitals.follow.base import Facts, Row
from trainvitals.follow.formats import choose

NAN = math.nan


def read(text, path="log"):
    """Return the name of the format of a text, and its rows as step, split and values."""
    data = text if isinstance(text, bytes) else text.encode()
    found, _ = choose(data, path)
    if found is None:
        return None, []
    rows = [item for item in items_of_pieces(found, [data]) if isinstance(item, Row)]
    return found.name, [(row.step, row.split, row.values) for row in rows]


def losses(text):
    """Return the format of a text, and the losses of the training by step."""
    name, rows = read(text)
    return name, [(step, values["loss"]) for step, split, values in rows if not split and "loss" in values]


MEGATRON = (
    " iteration {0:8d}/     900 | consumed samples: 64 | elapsed time per iteration (ms): 2500.0 |"
    " learning rate: 2.5E-06 |{1} loss scale: 1.0 | grad norm: 1.250 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |\n"
)


@pytest.mark.parametrize(
    ("said", "loss"),
    [
        (" lm loss: 2.500000E+00 |", 2.5),
        (" reduced_train_loss: 2.25 |", 2.25),
        (" load_balancing_loss: 1.1E+00 | lm loss: 2.5E+00 | mtp_1 loss: 3.5E+00 |", 2.5),
        (" total loss: 4.5E+00 | mse loss: 2.0E+00 |", 4.5),
        (" classification loss: 7.5E-01 |", 0.75),
        (" lm loss: NAN |", NAN),
    ],
)
def test_loss_of_megatron_by_any_name(said, loss):
    """A loss of another name is no NaN, and that which balances experts is none."""
    name, rows = losses(MEGATRON.format(7, said))

    assert name == "megatron"
    assert rows == [(7, pytest.approx(loss, nan_ok=True))]


def test_a_loss_that_vanishes_is_nan_by_its_name():
    """Megatron leaves out a loss that is NaN, also when others stay."""
    lines = MEGATRON.format(7, " total loss: 4.5 | mse loss: 2.0 |") + MEGATRON.format(8, " mse loss: 2.0 |")

    assert losses(lines)[1] == [(7, 4.5), (8, pytest.approx(NAN, nan_ok=True))]


def test_two_lines_of_megatron_in_one():
    """What one process writes into the line of another does not become a value of it."""
    broken = MEGATRON.format(7, " lm loss: 2.5 |")
    broken = broken[: broken.index("2.5 |") + 2]

    assert losses(broken + MEGATRON.format(8, " lm loss: 2.25 |"))[1] == [(8, 2.25)]


def test_gpt_neox():
    """Speed stands before the iteration, results are called results."""
    _, rows = read(
        " samples/sec: 34.125 | iteration       30/    4000 | elapsed time per iteration (ms): 7500.0 |"
        " learning rate: 1.5E-04 | approx flops per GPU: 45.5TFLOPS | lm_loss: 8.5E+00 | loss scale: 4096.0 |\n"
        " validation results at iteration 30 | lm_loss value: 8.25E+00 | lm_loss_ppl value: 3.8E+03 | \n"
    )

    assert rows[0][2]["samples_per_second"] == 34.125
    assert rows[0][2]["flops_per_device"] == 45.5e12
    assert rows[1] == (30, "validation", {"loss": 8.25, "ppl": 3800.0})


CASES = [
    # format, text, losses by step
    (
        "transformers",
        ("{'loss': np.float64(1.5), 'grad_norm': tensor(2.5, device='cuda:0'), 'epoch': 0.1}\n"),
        [(1, 1.5)],
    ),
    (
        "transformers",
        ("{'loss': 2.5, 'grad_norm': 1.5, 'iteration': '5/94', 'elapsed_time': '15s', 'train_speed(s/it)': 3.0}\n"),
        [(5, 2.5)],
    ),
    (
        "transformers",
        (
            "2025-11-05T10:00:01.5Z stdout F   1%|1         | 30/3000 [00:30<49:30, 1.0it/s]\n"
            "2025-11-05T10:00:01.6Z stdout F {'loss': 2.5, 'learning_rate': 5e-05, 'epoch': "
            "0.01}\n"
        ),
        [(30, 2.5)],
    ),
    (
        "nanogpt",
        "iter 30: loss 3.2500, lr 1.25e-05, grad_norm 0.5, time 500.00ms, mfu 41.25%\n",
        [(30, 3.25)],
    ),
    (
        "nanogpt",
        (
            "step     7 | loss: 9.250000 | lr 8.25e-07 | norm: 15.5000 | dt: 250.00ms | "
            "tok/sec: 19001.50\n"
            "validation loss: 9.5\n"
        ),
        [(7, 9.25)],
    ),
    (
        "nanogpt",
        ("0 val 10.9500\n0 hella 0.2475\n0 train 10.937500\n1 train 10.875000\n"),
        [(0, 10.9375), (1, 10.875)],
    ),
    (
        "llm.c",
        ("step    3/50 | train loss 5.375000 | norm 12.5 | lr 1.00e-04 | (3500.00 ms | 74.5 tok/s)\n"),
        [(3, 5.375)],
    ),
    (
        "llm.c",
        ("step 3: train loss 4.625000 (took 1987.500000 ms)\nval loss 4.5\n"),
        [(3, 4.625)],
    ),
    (
        "torchtitan",
        (
            "[rank0]:2024-06-01 10:00:05,125 - root - INFO - step: 20  loss:  4.1250  "
            "memory: 7.50GiB(8.88%)  wps: 1,250\n"
        ),
        [(20, 4.125)],
    ),
    (
        "fairseq",
        (
            "epoch 001:  10%|1| 110/1102 [00:12<01:40,  9.8it/s, loss=12.5, nll_loss=12.25, "
            "ppl=4321.5, num_updates=100]\n"
        ),
        [(100, 12.5)],
    ),
    (
        "fairseq",
        ("| epoch 001:    100 / 1102 loss=12.500, nll_loss=12.25, wps=32123, num_updates=101, lr=1e-05\n"),
        [(101, 12.5)],
    ),
    (
        "keras",
        (
            "Epoch 1/5\n"
            "1875/1875 - 3s - loss: 0.2500 - val_loss: 0.1500 - 3s/epoch - 2ms/step\n"
            "Epoch 2/5\n"
            "1875/1875 - 3s - 2ms/step - accuracy: 0.9500 - loss: 0.1250\n"
        ),
        [(1875, 0.25), (3750, 0.125)],
    ),
    (
        "plain",
        (
            "Epoch: [0][  1/500]\tTime  3.500 ( 3.5)\tData  1.250 ( 1.3)\tLoss 6.75e+00 "
            "(6.75e+00)\n"
            "Epoch: [0][ 11/500]\tTime  0.500 ( 0.9)\tData  0.250 ( 0.3)\tLoss 6.50e+00 "
            "(6.62e+00)\n"
            "Epoch: [1][  1/500]\tTime  0.500 ( 0.9)\tData  0.250 ( 0.3)\tLoss 6.25e+00 "
            "(6.25e+00)\n"
        ),
        [(1, 6.75), (11, 6.5), (501, 6.25)],
    ),
    (
        "plain",
        (
            "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.500000\n"
            "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.250000\n"
            "Test set: Average loss: 0.5000, Accuracy: 9000/10000 (90%)\n"
            "Train Epoch: 2 [0/60000 (0%)]\tLoss: 0.750000\n"
        ),
        [(0, 2.5), (640, 2.25), (60000, 0.75)],
    ),
    (
        "plain",
        (
            "Train: 0 [   0/1251 (  0%)]  Loss: 6.75 (6.75)  Time: 3.500s,   72.5/s  LR: "
            "1.000e-06  Data: 1.250\n"
            "Train: 0 [  50/1251 (  4%)]  Loss: 6.50 (6.62)  Time: 0.500s,   72.5/s  LR: "
            "1.000e-06  Data: 0.250\n"
        ),
        [(0, 6.75), (50, 6.5)],
    ),
    (
        "plain",
        ("[1,  2000] loss: 2.125\n[1,  4000] loss: 1.875\n[2,  2000] loss: 1.250\n"),
        [(2000, 2.125), (4000, 1.875), (6000, 1.25)],
    ),
    (
        "plain",
        (
            "Epoch 1\n"
            "-------\n"
            "loss: 2.250000  [   64/60000]\n"
            "loss: 2.125000  [ 6464/60000]\n"
            "Epoch 2\n"
            "-------\n"
            "loss: 1.750000  [   64/60000]\n"
        ),
        [(64, 2.25), (6464, 2.125), (60064, 1.75)],
    ),
    (
        "plain",
        (
            "Steps:   1%|1| 10/1000 [00:10<10:00, 1.6it/s, lr=1e-05, step_loss=0.125]\rSteps: "
            "  1%|1| 11/1000 [00:10<10:00, 1.6it/s, lr=1e-05, step_loss=0.25]\n"
        ),
        [(10, 0.125), (11, 0.25)],
    ),
    (
        "plain",
        ("第 1 轮，步: 10，损失: 2.25，学习率: 0.001\n第 1 轮，步: 20，损失: 2.125，学习率: 0.001\n"),
        [(10, 2.25), (20, 2.125)],
    ),
    (
        "plain",
        ("轮次 1/10，训练损失：0.5，验证损失：0.375\n轮次 2/10，训练损失：0.25，验证损失：0.3125\n"),
        [(1, 0.5), (2, 0.25)],
    ),
    (
        "plain",
        ("Epoch 1 loss 1.#QNAN\nEpoch 2 loss -1.#INF\nEpoch 3 loss 0.5\n"),
        [(1, NAN), (2, -math.inf), (3, 0.5)],
    ),
    (
        "plain",
        (
            "step: 10 cls_loss: 1.0 box_loss: 0.25 total_loss: 1.25\n"
            "step: 20 cls_loss: 0.5 box_loss: 0.25 total_loss: 0.75\n"
        ),
        [(10, 1.25), (20, 0.75)],
    ),
    (
        "plain",
        (
            "[step=10/1000,epoch=0]\n"
            "    train/CrossEntropyLoss=10.125\n"
            "[step=20/1000,epoch=0]\n"
            "    train/CrossEntropyLoss=9.125\n"
        ),
        [(10, 10.125), (20, 9.125)],
    ),
    (
        "plain",
        ('time {"step": 1, "loss": 2.5}\ntime {"step": 2, "loss": 2.25}\n'),
        [(1, 2.5), (2, 2.25)],
    ),
]


@pytest.mark.parametrize(("name", "text", "expected"), CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)])
def test_versions(name, text, expected):
    """Other versions and forms of a program are read."""
    found, rows = losses(text)

    assert found == name
    assert [step for step, _ in rows] == [step for step, _ in expected]
    assert [loss for _, loss in rows] == pytest.approx([loss for _, loss in expected], nan_ok=True)


def test_units_of_variants():
    """Milliseconds become seconds, percent a ratio, and the words of old versions ours."""
    _, rows = read("iter 30: loss 3.2500, lr 1.25e-05, time 500.00ms, mfu 41.25%\n")
    assert rows[0][2] == {"loss": 3.25, "learning_rate": 1.25e-5, "step_seconds": 0.5, "mfu": 0.4125}
    _, rows = read(next(text for name, text, _ in CASES if "Time: 3.500s" in text))
    assert rows[0][2] == {"loss": 6.75, "learning_rate": 1e-6, "step_seconds": 3.5, "data_seconds": 1.25, "epoch": 0.0}


@pytest.mark.parametrize("many", [1, 300])
def test_dicts_of_the_trainer_as_json_are_counted(many):
    """Where no line says its step, and the epoch has parts, it is the number of the line; results count none."""
    lines = "".join(
        f'{{"loss": {number / 4}, "epoch": {number / 8}}}\n{{"eval_loss": 1.5, "epoch": {number / 8}}}\n'
        for number in range(1, 3 * many + 1)
    )
    name, rows = losses(lines)

    assert name == "jsonl"
    assert rows == [(number, number / 4) for number in range(1, 3 * many + 1)]


def test_a_chart_that_was_exported_from_wandb():
    """The name of the run stands before that of the value; least and greatest ones are no values."""
    text = '"Step","happy-run-1 - train/loss","happy-run-1 - train/loss__MIN","happy-run-1 - train/loss__MAX"\n'
    _, rows = read(text + '"0","2.5","2.25","2.75"\n"10","1.5","1.25","1.75"\n')

    assert rows == [(0, "", {"loss": 2.5}), (10, "", {"loss": 1.5})]


def test_a_total_of_keras_that_is_not_known():
    """It is "Unknown" in the first epoch of a generator."""
    bars = "      1/Unknown - 1s 500ms/step - loss: 2.5\r     10/Unknown 1s 5ms/step - accuracy: 0.125 - loss: 2.25\n"

    assert losses("Epoch 1/2\n" + bars) == ("keras", [(1, 2.5), (10, 2.25)])


def test_an_evaluation_of_keras_is_no_step():
    """A bar with another total behind a full one is that of ``evaluate``, not of a training that began anew."""
    bar = "{0}/{0} [==============================] - 1s 20ms/step - loss: {1}\n"
    _, rows = read("Epoch 1/2\n" + bar.format(50, 0.5) + bar.format(20, 0.625) + "Epoch 2/2\n" + bar.format(50, 0.25))

    assert [(step, split, values["loss"]) for step, split, values in rows] == [
        (50, "", 0.5),
        (None, "evaluation", 0.625),
        (100, "", 0.25),
    ]


def test_ultralytics_tells_full_bars_once():
    """An epoch is a step, told when its bar is full; the loss is the sum of its parts."""
    row = (
        "        {0}/3      3.25G       1.75        3.5        {2}         19        640: {1}%|##| 8/8 [00:02<00:00]\n"
    )
    head = "\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
    name, rows = losses(head + row.format(1, 50, 9.5) + row.format(1, 100, 1.625) * 2 + head + row.format(2, 100, 1.5))

    assert name == "ultralytics"
    assert rows == [(1, 6.875), (2, 6.75)]


def test_torchtitan_says_how_many_steps_and_when_it_ended():
    """The number of steps stands in a line before the first."""
    line = "[rank0]:[titan] 2025-08-01 10:00:00,125 - root - INFO - "
    text = (
        f"{line}Training starts at step 1, with local batch size 8, global batch size 64, total steps 1000 (warmup 2)\n"
        f"{line}step:  1  loss:  8.1250  grad_norm:  1.2500  tps: 1,250\n{line}Training completed\n"
    ).encode()
    found, _ = choose(text, "log")
    facts = [item for item in items_of_pieces(found, [text]) if isinstance(item, Facts)]

    assert facts[0].target_steps == 1000
    assert facts[1].finished is not None


BARE = {
    "megatron": MEGATRON.format(40, " lm loss: 2.5 |").rstrip("\n"),
    "transformers": "{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.01}",
    "nanogpt": "iter 40: loss 2.5, time 500.00ms, mfu 41.25%",
    "llm.c": "step   40/50 | loss 2.5 (+0.1z)| norm 1.5 (+0.1z)| lr 1.75e-06 | 3400.00 ms | 48.5% bf16 MFU | 15 tok/s",
    "modded-nanogpt": "step:40/50 train_loss:2.5 train_time:52ms step_avg:51.50ms",
    "torchtitan": "step: 40  loss:  2.5  grad_norm:  1.2500  memory:  0.50GiB(0.67%)  tps: 1,250",
    "keras": "40/50 [======================>.......] - ETA: 5s - loss: 2.5",
    "fairseq": "| epoch 001:    40 / 50 loss=2.5, nll_loss=12.25, wps=32123, num_updates=40",
    "openmmlab": "2025/08/01 10:00:00 - mmengine - INFO - Iter(train) [  40/50]  lr: 1.0000e-02  time: 0.5  loss: 2.5",
    "paddlenlp": "[2025-08-31 16:19:16,001] [    INFO] - loss: 2.5, lr: 2.5e-05, global_step: 40, epoch: 0.5",
    "verl": "step:40 - train/loss:2.5 - train/grad_norm:0.125",
}
PREFIXES = {
    "srun": "3: {}",
    "torchrun": "[rank3]:{}",
    "tee": "[default3]:{}",
    "role": "[trainer3]:{}",
    "mpirun": "[1,3]<stdout>:{}",
    "ray": "(RayTrainWorker pid=123, ip=10.0.0.1) {}",
    "containerd": "2024-04-06T02:59:36.123456789Z stdout F {}",
    "kubectl": "2024-04-06T02:59:36.123456789Z {}",
    "kubectl --prefix": "[pod/train-worker-0/pytorch] {}",
    "compose": "trainer-1  | {}",
    "ts": "Nov 05 10:00:00 {}",
    "journald": "Apr 06 02:59:36 node7 torchrun[1234]: {}",
    "pdsh": "worker-0: {}",
    "logging": "INFO:root:{}",
    "loguru": "2024-04-06 02:59:36.123 | INFO     | __main__:train:12 - {}",
    "absl": "I0801 10:00:00.123456 139 train.py:312] {}",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
@pytest.mark.parametrize("name", BARE)
def test_prefixes(name, prefix):
    """What launchers and collectors put before each line hides no format."""
    found, rows = losses(prefix.format(BARE[name]) + "\n")

    assert found == name
    assert [loss for _, loss in rows] == [2.5]
    assert rows[0][0] == (1 if name == "transformers" else 40)


@pytest.mark.parametrize("name", BARE)
def test_lines_that_docker_keeps(name):
    """Docker's log driver writes each line into a JSON object, with its time."""
    line = {"log": BARE[name] + "\n", "stream": "stderr", "time": "2024-04-06T02:59:36.123456789Z"}
    found, rows = losses(json.dumps(line, separators=(",", ":")) + "\n")

    assert (found, [loss for _, loss in rows]) == (name, [2.5])


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_files_of_windows(name, codec):
    """A mark of byte order hides no line; what PowerShell writes in UTF-16 is read."""
    lines = f"{BARE[name]}\r\nand more\r\n"
    found, rows = losses(lines.encode(codec))

    assert (found, [loss for _, loss in rows]) == (name, [2.5])
