"""Made-up logs in the words of those who write such logs, with their quirks: what stands in a file.

Where a format writes an evaluation in the row of an epoch it does so here; where it writes a line of its own, it comes
behind the step that it belongs to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

from benchmarks.made import Log, Values

_Items = Iterator[tuple[str, int, Values]]


def _in_order(log: Log) -> _Items:
    """Yield "train" and "eval" with step and values, each evaluation behind the steps up to its own."""
    left = list(log.evaluations)
    newest = -1
    for step, values in log.train:
        # A run that goes back evaluates no second time.
        while left and left[0][0] < step and step > newest:
            yield "eval", *left.pop(0)
        newest = max(newest, step)
        yield "train", step, values
    for step, values in left:
        yield "eval", step, values


def _csv(rows: list[list[str]]) -> str:
    return "\n".join(",".join(row) for row in rows) + "\n"


def _modded(log: Log) -> str:
    lines, total = [], 0.0
    before = log.train[0][0] - 1
    for what, step, values in _in_order(log):
        if what == "train":
            total += values["seconds"] * 1000.0 * (step - before)
            before = step
        known = f"train_time:{total:.0f}ms step_avg:{total / max(step, 1):.2f}ms"
        name = "train_loss" if what == "train" else "val_loss"
        if "loss" in values:
            lines.append(f"step:{step}/{log.total} {name}:{values['loss']:.4f} {known}")
    return "\n".join(lines) + "\n"


def _nanogpt(log: Log) -> str:
    lines, last = [], math.nan
    for what, step, values in _in_order(log):
        if what == "train":
            last = values["loss"]
            lines.append(f"iter {step}: loss {last:.4f}, time {values['seconds'] * 1000.0:.2f}ms, mfu 31.42%")
        elif "loss" in values:
            lines.append(f"step {step}: train loss {last:.4f}, val loss {values['loss']:.4f}")
    return "\n".join(lines) + "\n"


def _megatron(log: Log) -> str:
    lines, samples, before = [], 0, 0
    for what, step, values in _in_order(log):
        batch = int(values.get("batch", 256))
        if what == "train":
            samples += batch * max(1, step - before)
            before = step
            lost = math.isnan(values["loss"])
            lines.append(
                f" iteration {step:8d}/{log.total:8d} | consumed samples: {samples:12d} | elapsed time per iteration "
                f"(ms): {values['seconds'] * 1000.0:.1f} | learning rate: {values['lr']:.6E} | global batch size: "
                f"{batch:5d} | lm loss: {'NAN' if lost else format(values['loss'], '.6E')} | loss scale: 1.0 | grad "
                f"norm: {'NAN' if lost else format(values['grad_norm'], '.3f')} | number of skipped iterations:   0 | "
                f"number of nan iterations: {int(lost):3d} |"
            )
        elif "loss" in values:
            loss = values["loss"]
            perplexity = math.exp(loss) if loss < 300.0 else math.nan
            lines.append(
                f" validation loss at iteration {step} | lm loss value: {loss:.6E} | lm loss PPL: {perplexity:.6E} |"
            )
    return "\n".join(lines) + "\n"


def _torchtitan(log: Log) -> str:
    lines, now, before = [], 0.0, 0
    for what, step, values in _in_order(log):
        if what == "train":
            now += values["seconds"] * max(1, step - before)
            before = step
        if "loss" not in values:
            continue
        said = f"step: {step:2d}  loss: {values['loss']:8.5f}  "
        if what == "train":
            said += f"grad_norm: {values['grad_norm']:7.4f}  "
        said += "memory: 40.10GiB(42.10%)  tps: "
        said += f"{int(8192 / values['seconds']):,}  tflops: 290.11  mfu: 29.33%" if what == "train" else "9,000"
        at = datetime.fromtimestamp(1_767_225_600 + now, timezone.utc).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        lines.append(f"[rank0]:[titan] {at} - root - INFO - {'' if what == 'train' else 'validate '}{said}\n")
    return "".join(lines)


def _jsonl(log: Log) -> str:
    lines = []
    for what, step, values in _in_order(log):
        if what == "train":
            told = {"step": step, "train_loss": values["loss"], "lr": values["lr"], "step_seconds": values["seconds"]}
            lines.append(told | {name: values[name] for name in ("reward", "kl") if name in values})
        else:
            told = {"step": step, **{f"val_{name}": value for name, value in values.items()}}
            lines.append(told)
    return "".join(json.dumps(line) + "\n" for line in lines)


def _plain_csv(log: Log) -> str:
    names = sorted({name for _, values in log.evaluations for name in values})
    more = [name for name in ("reward", "kl") if name in log.train[0][1]]
    rows = [["step", "lr", "loss", "step_seconds", *more, *(f"val_{name}" for name in names)]]
    results = dict(log.evaluations)
    for step, values in log.train:
        found = results.get(step, {})
        cells = [str(step), f"{values['lr']:.6g}", f"{values['loss']:.5f}", f"{values['seconds']:.4f}"]
        cells += [f"{values[name]:.5f}" for name in more]
        rows.append([*cells, *(f"{found[name]:.5f}" if name in found else "" for name in names)])
    return _csv(rows)


def _keras(log: Log) -> str:
    results = dict(log.evaluations)
    rows = [["epoch", "accuracy", "loss", "val_accuracy", "val_loss"]]
    for step, values in log.train:
        found = results.get(step, {})
        accuracy = 0.98 - 0.3 * min(values["loss"], 3.0) if math.isfinite(values["loss"]) else 0.1
        shown = [accuracy, values["loss"], found.get("accuracy", ""), found.get("loss", "")]
        rows.append([str(step), *(str(cell) for cell in shown)])
    names = [place for place in range(5) if any(row[place] for row in rows[1:])]
    return _csv([[row[place] for place in names] for row in rows])


def _percent(log: Log) -> str:
    results = dict(log.evaluations)
    rows = [["epoch", "train_loss", "eval_loss", "eval_top1", "lr"]]
    for step, values in log.train:
        found = results.get(step, {})
        cells = [f"{values['loss']:.6f}", f"{found.get('loss', 0.0):.6f}", f"{found.get('top1', 0.0):.3f}"]
        rows.append([str(step), *cells, f"{values['lr']:.6g}"])
    return _csv(rows)


def _ultralytics(log: Log) -> str:
    results = dict(log.evaluations)
    parts = {"box": 0.4, "cls": 0.35, "dfl": 0.25}
    head = ["epoch", *(f"train/{part}_loss" for part in parts), "metrics/precision(B)", "metrics/recall(B)"]
    head += ["metrics/mAP50(B)", "metrics/mAP50-95(B)", *(f"val/{part}_loss" for part in parts), "lr/pg0"]
    rows = [[f"{name:>23}" for name in head]]
    for step, values in log.train:
        found = results.get(step, {})
        good = found.get("mAP", 0.0)
        cells = [float(step), *(values["loss"] * share for share in parts.values()), 0.9 * good, 0.8 * good, good]
        cells += [0.6 * good, *(found.get("loss", 0.0) * share for share in parts.values()), values["lr"]]
        rows.append([f"{cell:23.5g}" for cell in cells])
    return _csv(rows)


def _mmcv(log: Log) -> str:
    lines = [json.dumps({"env_info": "sys.platform: linux\nPython: 3.8", "seed": 7})]
    inside, total = 0, len(log.train)
    epochs = max(1, len(log.evaluations))
    epoch = 1
    per = max(1, total // epochs)
    count = 0
    for what, _step, values in _in_order(log):
        if what == "train":
            count += 1
            number = min(epochs, 1 + (count - 1) // per)
            inside = 50 if number != epoch else inside + 50
            epoch = number
            lines.append(
                json.dumps({
                    "mode": "train", "epoch": epoch, "iter": inside, "lr": round(values["lr"] * 100, 5), "memory": 4012,
                    "data_time": round(0.08 * values["seconds"], 5), "loss_cls": round(0.6 * values["loss"], 5),
                    "loss_bbox": round(0.4 * values["loss"], 5), "loss": round(values["loss"], 5),
                    "time": round(values["seconds"], 5),
                })
            )  # fmt: skip
        else:
            good = round(values.get("bbox_mAP", 0.0), 4)
            lines.append(
                json.dumps(
                    {"mode": "val", "epoch": epoch, "iter": 5000, "lr": 0.02, "bbox_mAP": good, "bbox_mAP_50": good}
                )
            )
    return "\n".join(lines) + "\n"


def _paddle(log: Log) -> str:
    lines = []
    for what, step, values in _in_order(log):
        if what == "train":
            lines.append(
                f"[2026/01/01 00:00:00] ppocr INFO: epoch: [{int(values['epoch'] * 100)}/300], global_step: {step}, "
                f"lr: {values['lr']:.6f}, acc: 0.531249, norm_edit_dis: 0.741, loss: {values['loss']:.6f}, "
                f"avg_reader_cost: 0.00109 s, avg_batch_cost: {values['seconds']:.5f} s, avg_samples: 128.0, "
                f"ips: {128.0 / values['seconds']:.5f} samples/s, eta: 1 day, 2:03:04"
            )
        else:
            lines.append(
                f"[2026/01/01 00:00:00] ppocr INFO: cur metric, acc: {values.get('acc', 0.0):.12f}, "
                "norm_edit_dis: 0.8, fps: 1200.0"
            )
    return "\n".join(lines) + "\n"


def _fairseq(log: Log) -> str:
    lines = []
    for what, step, values in _in_order(log):
        loss = values.get("loss", math.nan)
        if what == "train":
            record = {"epoch": int(values["epoch"]) + 1, "update": round(values["epoch"], 3), "loss": f"{loss:.3f}",
                      "nll_loss": f"{0.95 * loss:.3f}", "wps": "21000", "ups": f"{1.0 / values['seconds']:.2f}",
                      "num_updates": str(step), "lr": f"{values['lr']:.6g}",
                      "gnorm": f"{values['grad_norm']:.3f}"}  # fmt: skip
            lines.append(f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps(record)}")
        else:
            record = {"epoch": 1, "valid_loss": f"{loss:.3f}", "valid_nll_loss": f"{0.95 * loss:.3f}",
                      "valid_ppl": f"{2.0 ** min(loss, 60.0):.2f}", "valid_num_updates": str(step)}  # fmt: skip
            record |= {f"valid_{name}": f"{value:.2f}" for name, value in values.items() if name != "loss"}
            lines.append(f"2026-01-01 00:00:00 | INFO | valid | {json.dumps(record)}")
    return "\n".join(lines) + "\n"


def _lightning(log: Log) -> str:
    names = sorted({name for _, values in log.evaluations for name in values})
    rows = [["epoch", "step", "train_loss_step", "train_loss_epoch", *(f"val_{name}" for name in names)]]
    losses: list[float] = []
    epoch = 0
    for what, step, values in _in_order(log):
        if what == "train":
            losses.append(values["loss"])
            rows.append([str(epoch), str(step), repr(values["loss"]), "", *("" for _ in names)])
        else:
            rows.append(
                [str(epoch), str(step), "", "", *(repr(values[name]) if name in values else "" for name in names)]
            )
            mean = sum(losses) / len(losses) if losses else math.nan
            rows.append([str(epoch), str(step), "", repr(mean), *("" for _ in names)])
            losses = []
            epoch += 1
    return _csv(rows)


def _history(log: Log) -> list[Values]:
    found: list[Values] = []
    for what, step, values in _in_order(log):
        if what == "train":
            entry = {"epoch": values["epoch"], "grad_norm": values["grad_norm"], "learning_rate": values["lr"]}
            entry |= {"loss": round(values["loss"], 4), "step": float(step)}
            entry |= {name: values[name] for name in ("reward", "kl") if name in values}
        else:
            entry = {f"eval_{name}": value for name, value in values.items()}
            entry |= {"eval_runtime": 3.1, "eval_samples_per_second": 410.0, "epoch": 1.0, "step": float(step)}
        found.append(entry)
    return found


def _trainer_state(log: Log) -> str:
    history = [{**entry, "step": int(entry["step"])} for entry in _history(log)]
    step = int(log.train[-1][0])
    state = {"best_metric": None, "epoch": 3.0, "global_step": step, "log_history": history, "max_steps": log.total}
    return json.dumps(state, indent=2)


def _hf_lines(log: Log) -> str:
    # The Trainer prints no steps: it is told how many there are.
    return "".join(f"{ {name: value for name, value in entry.items() if name != 'step'} }\n" for entry in _history(log))


def _llamafactory(log: Log) -> str:
    lines = []
    for what, step, values in _in_order(log):
        record: dict[str, Any] = {"current_steps": step, "total_steps": log.total}
        if what == "train":
            record |= {"loss": round(values["loss"], 4), "lr": values["lr"], "epoch": round(values["epoch"], 2)}
        elif "loss" in values:
            record |= {"eval_loss": values["loss"]}
        record |= {
            "percentage": round(100.0 * step / log.total, 2),
            "elapsed_time": "0:00:23",
            "remaining_time": "0:24:13",
        }
        lines.append(json.dumps(record) + "\n")
    return "".join(lines)


#: A form, the end of the name of its file, and who writes it.
FORMS: dict[str, tuple[str, Callable[[Log], str]]] = {
    "modded": ("log.txt", _modded),
    "nanogpt": ("train.log", _nanogpt),
    "megatron": ("out.log", _megatron),
    "torchtitan": ("out.log", _torchtitan),
    "jsonl": ("metrics.jsonl", _jsonl),
    "csv": ("log.csv", _plain_csv),
    "csv_percent": ("summary.csv", _percent),
    "keras": ("history.csv", _keras),
    "ultralytics": ("results.csv", _ultralytics),
    "mmcv": ("20260101_000000.log.json", _mmcv),
    "paddle": ("train.log", _paddle),
    "fairseq": ("train.log", _fairseq),
    "lightning": ("metrics.csv", _lightning),
    "trainer_state": ("trainer_state.json", _trainer_state),
    "hf_lines": ("train.log", _hf_lines),
    "llamafactory": ("trainer_log.jsonl", _llamafactory),
}


def write(log: Log) -> tuple[str, str]:
    """Return the name of the file that such a log has, and what stands in it."""
    name, writer = FORMS[log.form]
    return name, writer(log)
