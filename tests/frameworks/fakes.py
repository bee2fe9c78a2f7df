"""Fakes of libraries that tests cannot install: signatures of the named version, and just the behaviour around them.

Signatures, names and the order of calls were read in the sources that each fake names; nothing else is theirs.
"""

from __future__ import annotations

import contextlib
import logging
import types


def module(name, **members):
    """Return a module of this name."""
    made = types.ModuleType(name)
    vars(made).update(members)
    return made


def mlflow():
    """Return mlflow 3.17.2, ``mlflow/tracking/fluent.py``."""
    made = module("mlflow", written=[])

    def log_metric(key, value, step=None, synchronous=None, timestamp=None, run_id=None, model_id=None, dataset=None):
        made.written.append((key, value, step))

    def log_metrics(metrics, step=None, synchronous=None, run_id=None, timestamp=None, model_id=None, dataset=None):
        made.written.append((metrics, step))
        return "operations"

    made.log_metric, made.log_metrics = log_metric, log_metrics
    return made


def swanlab():
    """Return swanlab 0.10.3, ``swanlab/sdk/internal/run/__init__.py``: ``swanlab.log`` passes on to ``Run.log``."""

    def log(data, step=None):
        return None

    return module("swanlab", log=log)


def deepspeed(gradient_accumulation_steps=1, overflows=(), parameter_groups=2):
    """Return DeepSpeed 0.19.8, ``deepspeed/runtime/engine.py`` and ``runtime/pipe/engine.py``.

    The inner optimizer is called once per group of parameters, as ZeRO does; ``overflows`` are steps it skips.
    """

    def instrument_w_nvtx(function):
        # utils/nvtx.py: without functools.wraps.
        def wrapped_fn(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapped_fn

    class DeepSpeedEngine:
        def __init__(self):
            self.training = True
            self.global_steps = self.skipped_steps = self.micro_steps = 0
            self.world_size = 4
            self._global_grad_norm = None
            self.inner_calls = 0
            self.saved = []

        @instrument_w_nvtx
        def forward(self, *inputs, **kwargs):
            return inputs[0]

        @instrument_w_nvtx
        def backward(self, loss, retain_graph=False, scale_wrt_gas=True):
            return loss / gradient_accumulation_steps if scale_wrt_gas else loss

        def is_gradient_accumulation_boundary(self):
            return (self.micro_steps + 1) % gradient_accumulation_steps == 0

        def get_lr(self):
            return [0.5 / 2**self.global_steps, 0.125]

        def get_global_grad_norm(self):
            raise AssertionError("said to be a collective call")

        def train_batch_size(self):
            return 32

        def step(self, lr_kwargs=None):
            if self.is_gradient_accumulation_boundary():
                self._take_model_step(lr_kwargs)
            self.micro_steps += 1

        def _take_model_step(self, lr_kwargs):
            self.inner_calls += parameter_groups
            overflow = self.global_steps + 1 in overflows
            self.skipped_steps += overflow
            self._global_grad_norm = -1.0 if overflow else 2.0
            self.global_steps += 1

        def save_checkpoint(
            self,
            save_dir,
            tag=None,
            client_state={},
            save_latest=True,
            exclude_frozen_parameters=False,
        ):
            if not save_dir:
                raise ValueError("save_dir must be a non-empty string")
            self.saved.append(save_dir)
            return True

        def load_checkpoint(
            self,
            load_dir,
            tag=None,
            load_module_strict=True,
            load_optimizer_states=True,
            load_lr_scheduler_states=True,
            load_module_only=False,
            custom_load_fn=None,
        ):
            return load_dir, {}

    class PipelineEngine(DeepSpeedEngine):
        def train_batch(self, data_iter=None):
            self._take_model_step(None)
            return next(data_iter)

        def forward(self, *args, **kwargs):
            raise RuntimeError("only train_batch() is accessible in pipeline mode")

        backward = step = forward

    return (
        module("deepspeed.runtime.engine", DeepSpeedEngine=DeepSpeedEngine),
        module("deepspeed.runtime.pipe.engine", DeepSpeedEngine=DeepSpeedEngine, PipelineEngine=PipelineEngine),
    )


def megatron(settings, *, old=False):
    """Return NVIDIA/Megatron-LM at 001b00c2, ``megatron/training/training.py``, with ``ft_integration`` of 00caa53a.

    ``old`` is the ``training_log`` of megatron-core 0.7 and its forks.
    """
    said = []

    def training_log(
        loss_dict,
        total_loss_dict,
        learning_rate,
        iteration,
        loss_scale,
        report_memory_flag,
        skipped_iter,
        grad_norm,
        params_norm,
        num_zeros_in_grad,
        max_attention_logit,
        pg_collection=None,
        is_first_iteration=False,
    ):
        said.append(("log", iteration))
        return report_memory_flag

    def old_training_log(
        loss_dict,
        total_loss_dict,
        learning_rate,
        decoupled_learning_rate,
        iteration,
        loss_scale,
        report_memory_flag,
        skipped_iter,
        grad_norm,
        params_norm,
        num_zeros_in_grad,
    ):
        said.append(("log", iteration))
        return report_memory_flag

    def evaluate(
        forward_step_func,
        data_iterator,
        model,
        process_non_loss_data_func,
        config,
        verbose=False,
        non_loss_data_func=None,
        eval_iters=None,
    ):
        made.ft_integration.on_eval_step_start()
        made.ft_integration.on_eval_step_end()
        return data_iterator, None, False

    def evaluate_and_print_results(
        prefix,
        forward_step_func,
        data_iterator,
        model,
        iteration,
        process_non_loss_data_func,
        config,
        verbose=False,
        write_to_tensorboard=True,
        non_loss_data_func=None,
    ):
        for iterator in data_iterator if settings.multiple_validation_sets else [data_iterator]:
            made.evaluate(forward_step_func, iterator, model, process_non_loss_data_func, config, verbose)

    def save_checkpoint_and_time(
        iteration,
        model,
        optimizer,
        opt_param_scheduler,
        num_floating_point_operations_so_far,
        checkpointing_context,
        non_persistent_ckpt=False,
        train_data_iterator=None,
    ):
        made.ft_integration.on_checkpointing_start()
        made.ft_integration.on_checkpointing_end(is_async_finalization=False)
        if model is None:
            raise OSError("disk is full")

    marks = module(
        "megatron.training.ft_integration",
        on_training_step_start=lambda: None,
        on_training_step_end=lambda: None,
        on_eval_step_start=lambda: said.append("eval"),
        on_eval_step_end=lambda: None,
        on_checkpointing_start=lambda: said.append("checkpointing"),
        on_checkpointing_end=lambda is_async_finalization: None,
    )
    made = module(
        "megatron.training.training",
        said=said,
        ft_integration=marks,
        get_args=lambda: settings,
        training_log=old_training_log if old else training_log,
        evaluate=evaluate,
        evaluate_and_print_results=evaluate_and_print_results,
        save_checkpoint_and_time=save_checkpoint_and_time,
    )
    return made


class Torchtitan:
    """torchtitan 0.3.0: the modules that the adapter looks for, and a structured logger of its kind."""

    def __init__(self):
        self.logger = logging.getLogger("torchtitan.structured_logger")
        self.logger.propagate = False
        self.logger.setLevel(logging.INFO)
        self.step = None

        class MetricsProcessor:
            def __init__(self):
                self.ntokens_since_last_log = 4096
                self.parallel_dims = types.SimpleNamespace(non_data_parallel_size=2)

            def log(self, step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
                self.ntokens_since_last_log = 0

            def log_validation(self, loss, step, extra_metrics=None):
                pass

        class BaseCheckpointManager:
            def save(self, curr_step, last_step=False):
                if curr_step == 13:
                    raise OSError("disk is full")
                return last_step

        class Trainer:
            def __init__(self):
                training = types.SimpleNamespace(steps=500)
                self.config = types.SimpleNamespace(training=training)

            def train(self):
                return "trained"

        self.metrics = module("torchtitan.components.metrics", MetricsProcessor=MetricsProcessor)
        self.checkpoints = module(
            "torchtitan.components.checkpointer.base", BaseCheckpointManager=BaseCheckpointManager
        )
        # It imports what is in the others, as the real one does.
        self.trainer = module(
            "torchtitan.trainer",
            Trainer=Trainer,
            BaseCheckpointManager=BaseCheckpointManager,
            MetricsProcessor=MetricsProcessor,
        )

    @contextlib.contextmanager
    def span(self, name):
        """Emit the two records of ``log_trace_span``, ``observability/structured_logger/structured_logging.py``."""
        for edge in ("start", "end"):
            fields = {"log_type": "event", "log_type_name": f"{name}_{edge}", "event_name": None, "step": self.step}
            self.logger.info("", extra={**fields, "relative_step": None, "value": None, "task_name": None})
            if edge == "start":
                yield
