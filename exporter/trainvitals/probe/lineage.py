"""Which data, code and environment make this run: told in events ``lineage``, as flat tables with a hash of each.

Rank 0 tells all, the others the hashes only; the exporter compares attempts, and Prometheus compares nodes.
What :func:`trainvitals.init` is given is told at once, what the process is made of after the first step, when all is
imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from trainvitals.probe import code, digest, private, steady

#: What a table is about.
SUBJECTS = ("config", "dataset", "model", "code", "packages", "environment", "platform")

#: Modules whose release decides what a training computes, or how fast.
_PACKAGES = (  # noqa: SIM905  Sixty lines say no more.
    "accelerate apex axolotl bitsandbytes causal_conv1d colossalai composer datasets deepspeed diffusers evaluate "
    "fairseq flash_attn flax grouped_gemm jax jaxlib keras lightning liger_kernel llamafactory mamba_ssm "
    "megatron.core mindspore mmcv mmengine monai numpy open_clip optax paddle pandas peft pyarrow "
    "pytorch_lightning ray safetensors sentencepiece swift tensorflow timm tokenizers torch torch_musa torch_npu "
    "torch_xla torchao torchaudio torchdata torchtitan torchvision trainvitals transformer_engine transformers "
    "triton trl unsloth vllm webdataset xformers"
).split()
#: Variables that change how a training computes and communicates.  Never all: an environment holds secrets.
_VARIABLES = re.compile(
    r"CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|CUDA_MODULE_LOADING"
    r"|CUBLAS_WORKSPACE_CONFIG|NVIDIA_TF32_OVERRIDE|NVIDIA_VISIBLE_DEVICES|PYTHONHASHSEED|TOKENIZERS_PARALLELISM|XLA_FLAGS"
    r"|HF_(?:HUB|DATASETS)_OFFLINE|FORCE_TORCHRUN|ASCEND_(?:RT_VISIBLE_DEVICES|LAUNCH_BLOCKING)|HIP_VISIBLE_DEVICES"
    r"|ROCR_VISIBLE_DEVICES|(?:NCCL|RCCL|HCCL|GLOO|UCX|FI|OMP|MKL|KMP|OPENBLAS|PYTORCH|TORCH|TORCHINDUCTOR|TORCHDYNAMO"
    r"|TRITON|JAX|HSA|MIOPEN|NVTE|ACCELERATE|FSDP|DS)_[A-Z0-9_]{1,60}"
)
#: Each rank of a node may have another value.
_OF_RANK = frozenset(f"{name}_VISIBLE_DEVICES" for name in ("CUDA", "NVIDIA", "HIP", "ROCR", "ASCEND_RT"))
_DRIVER = re.compile(r"\s(\d{3}\.\d+(?:\.\d+)?)\s")


class Lineage:
    """Collects what a process is made of, and tells it.  ``tell`` takes the fields of an event.  Methods may raise."""

    def __init__(self, tell: Callable[[dict[str, Any]], None], *, whole: bool) -> None:
        self._tell = tell
        self._whole = whole
        self._hashes: dict[str, str] = {}
        self._complete = False

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for all that was told; empty before the first."""
        return digest.fingerprint(self._hashes) if self._hashes else ""

    def add(self, **given: Any) -> int:
        """Tell a configuration, a data set or a model; return how many of them could not be read."""
        tables, failed = {}, 0
        for subject, value in given.items():
            if value is not None:
                try:
                    tables[subject] = _READERS[subject](value)
                except Exception:  # The program's own ``to_dict``, say: no error of ours.
                    failed += 1
        self._add(tables)
        return failed

    def complete(self) -> None:
        """Tell code, packages, environment and platform, once."""
        if self._complete:
            return
        self._complete = True
        tables, errors = {}, []
        readers: tuple[tuple[str, Callable[[], digest.Rows]], ...] = (
            ("code", lambda: code.describe(code.main_file(), list(sys.modules.values()))),
            ("packages", lambda: packages(sys.modules)),
            ("environment", lambda: environment(os.environ)),
            ("platform", platform_rows),
        )
        for subject, read in readers:
            try:
                tables[subject] = read()
            except Exception as error:
                errors.append(error)
        self._add(tables)
        if errors:
            raise errors[0]

    def _add(self, tables: Mapping[str, digest.Rows]) -> None:
        # No code is code that was not found; no variable is a fact.
        known = {subject: rows for subject, rows in tables.items() if rows or subject == "environment"}
        news = {}
        for subject, rows in known.items():
            hashed = digest.fingerprint({name: text for name, text in rows.items() if name not in _OF_RANK})
            if self._hashes.get(subject) != hashed:
                self._hashes[subject] = news[subject] = hashed
        for subject, hashed in news.items():
            fields: dict[str, Any] = {"subject": subject, "hash": hashed, "lineage": self.hash}
            self._tell({**fields, "values": known[subject]} if self._whole else fields)


def packages(modules: Mapping[str, Any]) -> digest.Rows:
    """Return the releases of those of :data:`_PACKAGES` that are imported; of PyTorch also what it was built for."""
    rows: digest.Rows = {}
    for name in _PACKAGES:
        module = modules.get(name)
        if module is not None:
            release = code.own_attributes(module).get("__version__")
            found = str(release) if release is not None else _installed_release(name)
            if found:
                rows[name] = found[:64]
    built = getattr(modules.get("torch"), "version", None)
    for name in ("cuda", "hip"):
        release = getattr(built, name, None)
        if isinstance(release, str):
            rows[f"torch.{name}"] = release[:64]
    return rows


def _installed_release(name: str) -> str:
    from importlib import metadata  # noqa: PLC0415  Slow to import, and most modules say it themselves.

    try:
        return metadata.version(name.partition(".")[0].replace("_", "-"))
    except metadata.PackageNotFoundError:
        return ""


def environment(environ: Mapping[str, str]) -> digest.Rows:
    """Return the variables that change how a training runs."""
    rows: digest.Rows = {}
    same = steady.Steady.of_this_process()
    for name in sorted(environ):
        is_told = _VARIABLES.fullmatch(name) and not private.is_secret(name) and not steady.is_own(name)
        text = digest.text_of(environ[name]) if is_told and len(rows) < 100 else None
        if text is not None:
            # None of them names data: what looks like a moment or a host is one.  A device may be named by a UUID.
            rows[name] = text if name in _OF_RANK else same.text(f"{name}.output", text)
    return rows


def platform_rows(driver_file: str = "/proc/driver/nvidia/version") -> digest.Rows:
    """Return Python, kernel, machine and the release of NVIDIA's driver; nothing that tells one node from another."""
    system = os.uname()
    python = ".".join(map(str, sys.version_info[:3]))
    rows = {"python": python, "kernel": system.release, "machine": system.machine}
    try:
        with open(driver_file, encoding="ascii", errors="replace") as file:
            match = _DRIVER.search(file.readline(512))
    except OSError:
        match = None
    return {**rows, "driver": match[1]} if match else rows


_READERS: dict[str, Callable[[Any], digest.Rows]] = {
    "config": digest.of_config,
    "dataset": digest.of_dataset,
    "model": digest.of_model,
}
