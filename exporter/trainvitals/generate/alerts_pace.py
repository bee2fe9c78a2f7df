"""Alerts of what makes a run slower than it could be: findings of the exporter, which compares a run with itself."""

from __future__ import annotations

from trainvitals.generate.limits import LIMITS
from trainvitals.generate.rules import Alert
from trainvitals.generate.texts import active, findings

PACE: tuple[Alert, ...] = (
    Alert(
        name="TrainvitalsSlowdown",
        file="resource",
        category="resource",
        severity="warning",
        gauge="efficiency",
        signal="slowdown",
        expr=active("slowdown"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: steps take longer than before",
        summary_zh="训练 {{ $labels.run }}：每步耗时变长",
        description=findings("slowdown", "Steps take longer than the same run needed before") + ".",
        description_zh=findings("slowdown", "每步耗时超过该训练之前的水平") + "。",
        action=(
            "Data first: look at the share of time that waits for data, and at the disk and network it comes from. "
            "Then at what else runs on these nodes and devices, at clocks, temperature and throttling of the devices, "
            "and for a rank that the others wait for. "
            "Parameters: if batch or sequence length were raised on purpose, report `tokens` or `samples` of each step."
        ),
        action_zh=(
            "先查数据：看等待数据的时间占比，以及数据所在磁盘和网络。"
            "再查这些节点和设备上的其他进程、设备的频率、温度和降频，以及是否有 rank 被其他 rank 等待。"
            "再查参数：若有意增大了批大小或序列长度，请在每步上报 `tokens` 或 `samples`。"
        ),
        impact="The run takes longer by as much, on all of its devices.",
        impact_zh="训练在其全部设备上都按该比例变慢。",
        diagnosis=(
            "The middle of the last 100 steps or more against the 640 before them; below 2 times only after 20 "
            "minutes. An even level below 3 times the old one is taken for a plan where the training tells neither "
            "tokens nor samples. A restart opens a new baseline."
        ),
        diagnosis_zh=(
            "用最近至少 100 步的中位数与之前 640 步比较；变慢不足 2 倍时，持续 20 分钟才告警。"
            "若训练没有上报 tokens 或 samples，稳定在旧值 3 倍以内的新水平视为有意调整。重启后重新建立基线。"
        ),
    ),
    Alert(
        name="TrainvitalsStraggler",
        file="resource",
        category="resource",
        severity="warning",
        gauge="efficiency",
        expr=active("straggler"),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: one rank keeps the others waiting",
        summary_zh="训练 {{ $labels.run }}：有 rank 拖慢其他 rank",
        description=findings("straggler", "A rank works longer in each step than the others") + ".",
        description_zh=findings("straggler", "有 rank 每步的工作时间比其他 rank 长") + "。",
        action=(
            "Data first: if that rank waits for data, look at its disk and loader. "
            "Then compare clocks, temperature, throttling, link errors and other processes of its device with those "
            "of the others. If it comes again, drain the device. "
            "Parameters: if it is another rank each time, balance the lengths of the batches."
        ),
        action_zh=(
            "先查数据：若该 rank 在等待数据，检查其磁盘和数据加载。"
            "再将其设备的频率、温度、降频、链路错误和其他进程与其他设备对比；若反复出现，下线该设备。"
            "再查参数：若每次是不同的 rank，均衡各批次的长度。"
        ),
        impact="All devices of the run wait for this one in every step.",
        impact_zh="该训练的所有设备每一步都要等它。",
        diagnosis=(
            "The rank that waits least in communication is the one that is waited for. Compared are ranks of one run "
            "on one node that report the phase communication, over five windows of two minutes."
        ),
        diagnosis_zh=(
            "通信中等待最少的那个 rank，就是其他 rank 在等的那个。"
            "比较对象是同一节点上同一训练中上报了通信阶段的 rank，取五个各两分钟的窗口。"
        ),
    ),
    Alert(
        name="TrainvitalsCommunicationBound",
        file="resource",
        category="resource",
        severity="info",
        gauge="efficiency",
        signal="communication_bound",
        expr=active("communication_bound", mild=True),
        keep=LIMITS.signal_keep,
        summary="Run {{ $labels.run }}: much of the time is communication that nothing hides",
        summary_zh="训练 {{ $labels.run }}：大量时间花在未被掩盖的通信上",
        description=findings("communication_bound", "A fifth of the time or more is exposed communication") + ".",
        description_zh=findings("communication_bound", "五分之一以上的时间是暴露的通信") + "。",
        action=(
            "Look for a straggler and at the links first. "
            "Parameters: larger batches per device, more gradient accumulation, larger buckets, or fewer nodes; more "
            "devices would wait more."
        ),
        action_zh=(
            "先查是否有拖慢者以及链路状况。再查参数：增大每设备批大小、增加梯度累积、增大通信桶，或减少节点；"
            "增加设备只会等待更多。"
        ),
        impact="The devices idle for that share of the time.",
        impact_zh="设备按该比例空闲。",
        diagnosis="The share of the phase communication in ten minutes of training, as the framework measures it.",
        diagnosis_zh="十分钟训练时间里通信阶段所占的比例，由训练框架测得。",
    ),
)
