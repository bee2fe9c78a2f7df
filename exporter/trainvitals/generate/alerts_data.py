"""Alerts of the category data: the input is the problem."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.records import DATA_WAIT
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import ON_RANK, active, findings, listed

_RANKS = listed(
    """
    sum by (instance, rank) (rate(trainvitals_phase_seconds_total{run=%q,phase="data"}[5m]))
    / (sum by (instance, rank) (rate(trainvitals_phase_seconds_total{run=%q}[5m])) > 0)
    """,
    ON_RANK + ": {{ .Value | humanizePercentage }}",
    "run",
    "run",
)

DATA: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsDataStarvation",
        file="data",
        category="data",
        severity="warning",
        gauge="efficiency",
        signal="data_starvation",
        expr=f"max by (run) ({DATA_WAIT}) > {LIMITS.data_wait_ratio}",
        wait=LIMITS.data_wait_for,
        summary="Run {{ $labels.run }}: the training waits for its data",
        summary_zh="训练 {{ $labels.run }}：训练在等待数据",
        description=(
            "{{ $value | humanizePercentage }} of the last 5 minutes went into waiting for the next batch ("
            + _RANKS
            + ")."
        ),
        description_zh=("最近 5 分钟有 {{ $value | humanizePercentage }} 的时间在等待下一个批次（" + _RANKS + "）。"),
        action=(
            "Data first: raise the number of loader workers and the prefetch; if the CPUs are busy, prepare samples "
            "beforehand; if the disk or network is busy, pack small files into shards or copy them to a local disk. "
            "Parameters: accumulate gradients over more batches only if the loader cannot be made faster."
        ),
        action_zh=(
            "先查数据：增加加载进程数和预取；若 CPU 已满，提前做预处理；"
            "若磁盘或网络已满，把小文件打包成分片或复制到本地盘。"
            "再查参数：加载确实无法更快时，再增加梯度累积。"
        ),
        impact="The devices idle for that share of the time, and the run takes longer by as much.",
        impact_zh="设备按该比例空闲，训练时间相应延长。",
        diagnosis=(
            "All ranks: storage, network or too few workers. One rank: its node or its shard. Compare the panels for "
            "CPU, "
            "disk and network of the node with the phases of the run."
        ),
        diagnosis_zh=(
            "所有 rank 都在等：查存储、网络，或加载进程过少。只有一个 rank 在等："
            "查它所在的节点或它的数据分片。把节点的 CPU、磁盘、网络图与训练的各阶段耗时对照。"
        ),
    ),
    Alert(
        name="TrainvitalsDataErrors",
        file="data",
        category="data",
        severity="warning",
        gauge="health",
        expr=active("data_error"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: samples cannot be read",
        summary_zh="训练 {{ $labels.run }}：有样本无法读取",
        description=findings("data_error", "Samples or batches could not be read, or a check complained of them") + ".",
        description_zh=findings("data_error", "有样本或批次无法读取，或未通过检查") + "。",
        action=(
            "Data first: open the files that are named; copy damaged ones anew, compare them with their checksums, or "
            "take them out of the list. One node only: look at its disk, its mount and its kernel log. "
            'Parameters: with on_error="raise" the training has ended or will end by it; '
            "`trainvitals.guarded(dataset)` puts the next good sample in the place of a bad one until the files are "
            "repaired."
        ),
        action_zh=(
            "先查数据：打开所列文件；损坏的重新复制，与校验和比对，或从清单中剔除。仅一个节点：检查其磁盘、挂载和内核日志。"
            '再查参数：on_error="raise" 时训练已经或即将因此结束；'
            "修复文件之前，可用 `trainvitals.guarded(dataset)` 以下一个好样本代替坏样本。"
        ),
        impact="Skipped samples are not learned from, and whole shards of them bend the mixture; a raise ends the run.",
        impact_zh="被跳过的样本没有参与训练，整个分片被跳过会改变数据配比；若抛出异常则训练结束。",
        diagnosis=(
            "`data_error` lines in the events file beside the rank file hold type, message, file and index of the "
            "first 64 errors of each process; `rate(trainvitals_data_errors_total[5m])` over "
            "`rate(trainvitals_batch_samples_total[5m])` is the share that is lost."
        ),
        diagnosis_zh=(
            "rank 文件旁的事件文件中，`data_error` 行记录了每个进程前 64 个错误的类型、信息、文件和索引。"
            "`rate(trainvitals_data_errors_total[5m])` 除以 "
            "`rate(trainvitals_batch_samples_total[5m])` 即为丢失的比例。"
        ),
    ),
    Alert(
        name="TrainvitalsOutlierRecurs",
        file="data",
        category="data",
        severity="warning",
        gauge="learning",
        signal="outlier_recurs",
        expr=active("outlier_recurs"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: the same step is odd again: something is in its data",
        summary_zh="训练 {{ $labels.run }}：同一步再次异常，问题在数据中",
        description=findings("outlier_recurs", "A step that was odd in an attempt before is odd again") + ".",
        description_zh=findings("outlier_recurs", "此前尝试中异常的步再次异常") + "。",
        action=(
            "Data first: open the files or samples that are named, or those in the batches of these steps, and leave "
            "out what is damaged, empty, repeated or of another kind. "
            "Parameters: change none for it."
        ),
        action_zh=(
            "先查数据：打开所列文件或样本（或这些步的批次），剔除损坏、空白、重复或异类的内容。再查参数：无需为此改动。"
        ),
        impact="One odd batch does little harm; as a rule there are more of its kind, and each may start a spike.",
        impact_zh="一个异常批次危害不大，但同类数据通常不止一个，每一个都可能引发突增。",
        diagnosis=(
            "Chance does not come again at the same step, data does. Without a watched loader "
            "(`trainvitals.data`), step, batch size and the order of the data say which samples these are."
        ),
        diagnosis_zh=(
            "偶然因素不会在同一步重现，数据会。若没有用 `trainvitals.data` 包装数据加载器，"
            "可由步数、批大小和数据顺序推算出是哪些样本。"
        ),
    ),
)
