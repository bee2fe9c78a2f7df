"""Errors of the program and of its numbers.

Wordings of Python's traceback, of PyTorch (anomaly mode, ``clip_grad_norm_``, ``load_state_dict``), of the loss scalers
of DeepSpeed, apex and fairseq, of Megatron-LM's checks of its results.
"""

from __future__ import annotations

from trainvitals.follow.errors.base import Level, causes

_NAME = r"^(?:[\w.]{1,80}\.)?"
_SCALE = r"[\d.]{1,40}(?:[eE][+-]?\d{1,3})?"

CAUSES = causes(
    (
        "loss_scale_minimum",
        "parameter",
        Level.ROOT,
        ("loss scale",),
        r"Current loss scale already at minimum|Minimum loss scale reached \((?P<scale>[\d.e+-]{1,40})\)",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "Gradients overflow at every step, however small the scale of the loss is: they are not finite.",
        (
            "Go back to a checkpoint before it; lower the learning rate, clip gradients, look at the data of these "
            "steps; use bf16."
        ),
    ),
    (
        "loss_scale_overflow",
        "parameter",
        Level.NOTICE,
        ("verflow", "OVERFLOW"),
        (
            rf"(?:OVERFLOW!|Overflow detected\.).{{0,40}}?(?:Rank (?P<rank>\d{{1,6}}) )?Skipping step\. Attempted"
            rf" loss scale: (?P<attempted>{_SCALE}),"
            rf" (?:reducing to (?P<reduced>{_SCALE})|but hysteresis)"
            rf"|[Gg]radient overflow.{{0,60}}(?:loss scale to:? (?P<scale>{_SCALE}))"
            r"|Gradient overflow\.  ?Skipping step"
        ),
        (
            "[2026-03-02 04:00:21,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping "
            "step. "
            "Attempted loss scale: 131072, reducing to 65536"
        ),
        "A step was left out because gradients did not fit into fp16: normal at the start and now and then.",
        "Nothing while it is rare; see loss_scale_minimum when it does not stop.",
    ),
    (
        "nan_detected",
        "parameter",
        Level.ROOT,
        ("nan", "NaN", "Nan", "inf", "Inf", "finite"),
        (
            r"Function '(?P<function>\w{1,80})' returned nan values in its|found (?:NaN|Inf) in (?:local|grad)"
            r"|Unexpected result (?:nan|-?inf) on rank (?P<rank>\d{1,6})"
            r"|[Ll]oss is (?:nan|-?inf|NaN), stopping|Invalid loss, terminating training"
            r"|[Tt]he total norm .{0,60}is non-finite"
            r"|probability tensor contains either|NaN detected in output of|FloatingPointError: .{0,80}(?:NaN|nan|inf)"
        ),
        "RuntimeError: Function 'LogSoftmaxBackward0' returned nan values in its 0th output.",
        "The program itself found values that are not finite, and stopped or says so.",
        "Look at the data of the last steps first, then lower the learning rate; go back to a checkpoint before it.",
    ),
    (
        "import_failed",
        "resource",
        Level.ROOT,
        ("ModuleNotFoundError", "ImportError"),
        rf"{_NAME}(?:ModuleNotFoundError|ImportError): (?:No module named '(?P<module>[\w.]{{1,80}})')?",
        "ModuleNotFoundError: No module named 'fused_kernels'",
        "A package is missing or does not fit the others.",
        "Install it in the environment of that node; compare with a node where it runs.",
    ),
    (
        "state_mismatch",
        "parameter",
        Level.ROOT,
        ("loading state_dict", "size mismatch for", "Missing key(s)"),
        (
            r"Error\(s\) in loading state_dict for (?P<module>[\w.]{1,80})"
            r"|^\s{0,8}size mismatch for \S{1,120}: copying a param"
        ),
        "RuntimeError: Error(s) in loading state_dict for GPTModel:",
        "A checkpoint belongs to another model or another split of it.",
        "Compare the model's settings with those of the checkpoint; convert it if the parallel split changed.",
    ),
    (
        "arguments_wrong",
        "parameter",
        Level.ROOT,
        (": error: ",),
        r"^\S{1,80}\.py: error: (?:unrecognized arguments|the following arguments are required|argument )",
        "pretrain.py: error: unrecognized arguments: --use-flash",
        "The command line has arguments that the program does not know, or lacks some.",
        "Correct the command; see which version of the program takes it.",
    ),
    (
        "exception",
        "parameter",
        Level.SYMPTOM,
        (),
        r"(?!)",
        "ValueError: expected 4 heads, got 3",
        "A traceback ended with an error that no other row knows.",
        "Read the traceback; its last line of your own code is the place.",
    ),
)
