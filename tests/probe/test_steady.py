"""What differs at each start although nobody changed it is no change."""

from __future__ import annotations

import argparse

import pytest

from trainvitals.probe import digest, steady
from trainvitals.probe.lineage import environment

ENVIRON = {"SLURM_JOB_ID": "48151", "PBS_JOBID": "777.server"}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("output_dir", "runs/2026-01-31-12", "runs/<time>"),
        ("output_dir", "runs/20260131_120502", "runs/<time>"),
        ("logging_dir", "runs/Nov30_20-49-08_gpu-17", "runs/<time>_<host>"),
        ("run_dir", "outputs/2026-01-31/12-05-02", "outputs/<time>"),
        ("started", "2026-01-31T12:05:02.123+01:00", "<time>"),
        ("save_dir", "/out/31-01-2026", "/out/<time>"),
        ("log_file", "train-1796071748.log", "train-<time>.log"),
        ("log_file", "train-1796071748123.log", "train-<time>.log"),
        ("log_file", "train.31337.log", "train.<pid>.log"),
        ("run_name", "5f2b8c1e-0a1b-4c2d-8e3f-0123456789ab", "<uuid>"),
        ("checkpoint_dir", "/scratch/48151/ckpt", "/scratch/<job>/ckpt"),
        ("scratch", "/local/job.777", "/local/job.<job>"),
        ("folder", "/tmp/tmpab12cd_4/x", "/tmp/<temporary>/x"),
        ("model", "<function f at 0x7f9bdf045690>", "<function f at <address>>"),
        ("device", "cuda:3", "cuda"),
    ],
)
def test_what_differs_at_each_start_is_replaced(name, text, expected):
    """Moments, jobs, process ids and temporary folders; on which device a rank is."""
    assert steady.Steady(ENVIRON, 31337, "gpu-17.cluster").text(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dataset", "wikipedia/20220301.en"),
        ("data_path", "/data/export-2026-01-31-12"),
        ("version", "20220301"),
        ("model", "gpt-4-2024-05-13"),
        ("lr", "0.0003"),
        ("tokens", "1600000000"),
        ("output_dir", "runs/lr-3e-4-batch-4815"),
        ("output_dir", "runs/2026-13-41"),
        ("revision", "3f786850e387550fdab836ed7e6dc881de23001b"),
        ("betas", "0.9, 0.95"),
        ("host_model", "gpu-170"),
        ("output_dir", "out/tmpfiles"),
    ],
)
def test_what_somebody_chose_stays(name, text):
    """The version of a data set above all."""
    assert steady.Steady(ENVIRON, 31337, "gpu-17.cluster").text(name, text) == text


def test_a_host_without_a_digit_and_a_small_process_id_stay():
    """In a container the process is number 7, and a host may be called as a model is."""
    assert steady.Steady({}, 7, "bert").text("output_dir", "out/bert-7") == "out/bert-7"


def test_what_each_process_has_of_its_own_is_left_out():
    """Ports, addresses, process ids, ranks, and where a run goes on; a rank of LoRA is none of these."""
    own = {"local_rank": 3, "port": 29512, "main_process_port": 1, "pid": 4711, "master_addr": "a", "hostname": "n"}
    going_on = {"resume_from_checkpoint": "out/checkpoint-500", "start_epoch": 3, "iteration": 900}
    assert digest.of_config({**own, **going_on, "lr": 1}) == {"lr": "1"}
    assert digest.of_config({"rank": 3, "gpu": 1, "world_size": 8}) == {"world_size": "8"}
    assert digest.of_config({"lora": {"rank": 8}, "rank": 16, "rank_pattern": "x", "support": 1}) == {
        "lora.rank": "8",
        "rank": "16",
        "rank_pattern": "x",
        "support": "1",
    }


def test_numbers_that_are_moments_are_no_settings():
    """By their name and their size."""
    config = {"start_time": 1796071748.5, "timestamp": 1796071748, "max_time": 3600, "seed": 1796071748}
    assert digest.of_config(config) == {
        "start_time": "<time>",
        "timestamp": "<time>",
        "max_time": "3600",
        "seed": "1796071748",
    }


def test_two_starts_of_one_program_have_one_hash():
    """As the arguments of a Trainer look on two nodes, at two times."""
    first = argparse.Namespace(lr=0.1, output_dir="out/2026-01-31_12-00-01", local_rank=0, device="cuda:0", port=29500)
    second = argparse.Namespace(lr=0.1, output_dir="out/2026-02-01_03-59-59", local_rank=5, device="cuda:5", port=31999)
    other = argparse.Namespace(lr=0.2, output_dir="out/2026-02-01_03-59-59", local_rank=5, device="cuda:5", port=31999)

    hashes = [digest.fingerprint(digest.of_config(config)) for config in (first, second, other)]
    assert hashes[0] == hashes[1]
    assert hashes[1] != hashes[2]


def test_the_environment_is_the_same_at_each_start():
    """Folders of caches that are made anew, and the address of a rendezvous."""
    environ = {"TRITON_CACHE_DIR": "/tmp/tmpab12cd34", "NCCL_COMM_ID": "10.0.0.1:31999", "NCCL_DEBUG": "INFO"}
    assert environment(environ) == {"TRITON_CACHE_DIR": "/tmp/<temporary>", "NCCL_DEBUG": "INFO"}
    devices = {"CUDA_VISIBLE_DEVICES": "GPU-5f2b8c1e-0a1b-4c2d-8e3f-0123456789ab"}
    assert environment(devices) == devices
