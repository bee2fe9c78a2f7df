"""Errors in real logs: the root cause of each that ended, and none in those that did not.

The logs are no part of the project; where their folder is missing, these tests are skipped.
"""

import csv
from pathlib import Path

import pytest

from trainvitals.follow.errors import ErrorReader, root_cause
from trainvitals.follow.text import clean

DATA = Path(__file__).parent.parent.parent.parent / "shared" / "data"
TEXT = {".log", ".txt", ".out", ".json", ".jsonl", ".csv", ".ttar"}

#: File, cause, and a part of its place where the log names one.
ENDED = [
    ("stdout/modded/hyp_oom_torchrun.txt", "device_out_of_memory", "rank 1, device 1"),
    ("stdout/modded/missing_module_torchrun.txt", "import_failed", "train_gpt.py:41"),
    ("stdout/modded/childfailed_tail.txt", "text_undecodable", "tokenization_utils_fast.py:116"),
    ("stdout/modded/nebius_candidate07_stuck_after_last_step.console.txt", "terminated", ""),
    ("stdout/golf/oom_single.txt", "device_out_of_memory", "rank 0, device 0"),
    ("stdout/golf/invalid_device_ordinal.log", "no_such_device", ""),
    ("stdout/golf/childfailed_only.log", "no_such_device", "train_gpt.py:3018"),
    ("stdout/golf/slurm_time_limit.out", "time_limit", "node gpu01"),
    ("stdout/golf/no_space_left_master.log", "disk_full", ""),
    ("stdout/golf/rank_timeout_mixed.log", "collective_timeout", "rank 2"),
    ("stdout/golf/behemoth_nan_300.txt", "process_killed", "rank 7, node host-05"),
    ("stdout/golf/behemoth_nan_500.txt", "process_killed", "rank 0, node host-05"),
    ("stdout/golf/behemoth_nan_1050.txt", "process_killed", "rank 1, node host-05"),
    ("stdout/golf/orchestrator_progress_nan.log", "exception", "rank 0, train_gpt.py:2440"),
    ("stdout/nanogpt/linesearch_spike_6590_crash.txt", "terminated", "rank 0, node host-14"),
    ("stdout/nanogpt/keyboardinterrupt.log", "interrupted", ""),
    ("stdout/nanogpt/lozo_keyerror_torchrun.log", "exception", "rank 1, lozo_train.py:212"),
    ("stdout/torchtitan/nccl_watchdog_timeout.log", "collective_timeout", "rank 0"),
    ("stdout/torchtitan/illegal_memory_access.log", "device_illegal_access", "rank 0"),
    ("stdout/torchtitan/nccl_warn_corrupted_comm.log", "nccl_failed", "rank 0"),
    ("stdout/torchtitan/nccl_warn_socket_state.log", "nccl_failed", "rank 0"),
    ("stdout/torchtitan/keyboardinterrupt.txt", "interrupted", ""),
    ("stdout/megatron/gpt2_base_n4_cancelled.out", "job_cancelled", "node hpcnode-01"),
    ("stdout/megatron/gpt2_base_n64_cancelled.out", "time_limit", "node hpcnode-03"),
    ("stdout/megatron/bloom13b_dataloader_bus_error.log", "shared_memory_full", ""),
    ("stdout/megatron/bloom13b_bad_gpu_oom_at_start.log", "device_memory_taken", "distributed_c10d.py:2420"),
    ("stdout/megatron/bloom176b_gpu_crash.log", "cuda_error", "rank 3"),
    ("stdout/deepspeed/random_ltd_device_assert.log", "device_illegal_access", ""),
    ("stdout/deepspeed/random_ltd_nan.log", "interrupted", ""),
    ("stdout/mmdet_slurm/slurm-2365.out", "job_cancelled", "node node03"),
    ("issue_recon/ofa_271_watchdog.log", "collective_timeout", "rank 1"),
    ("issue_recon/llamafactory_7396_watchdog.log", "collective_timeout", "rank 0"),
    ("issue_recon/nccl_1111_reduce_scatter.log", "collective_timeout", "rank 65"),
    ("crash_refs/mleng_nccl_watchdog.txt", "collective_missing_ranks", "ranks 1"),
    ("crash_refs/mleng_nccl_warn_ib_error12.txt", "collective_link_error", "peer 10.0.9.72"),
    ("crash_refs/mleng_nccl_warn_conn_refused.txt", "network_connect_failed", "peer 10.0.9.74"),
    ("crash_refs/mleng_xid63.txt", "xid_hardware", "device 0000:10:1c.0"),
    ("crash_refs/nvrx_gpu_error_2nd_reference.txt", "collective_missing_ranks", "ranks 9,14"),
    ("ascend/train_call_worker-1_rank0.txt", "segfault", ""),
    ("ascend/train_call_worker-2_rank0.txt", "npu_error", "tensor.py:888"),
    ("ascend/train_call_worker-3_rank0.txt", "npu_error", ""),
    ("ascend/plog-26251_20250124110314544.log", "collective_link_error", ""),
    ("ascend/plog-12337_20230704214646084.log", "collective_link_error", "peer 10.0.7.102"),
    ("ascend/plog-1365_20250806230935838.log", "collective_timeout", "device 3"),
    ("host/m4_hang_dmesg_tail.txt", "hung_task", ""),
    ("host/gpud_pstore_dmesg-erst.txt", "kernel_panic", ""),
    ("gpu/xid/gpud_xid119_dmesg.log", "xid_hardware", "device 0000:9b:00.0"),
    ("gpu/xid/gpud_xid13_43_dmesg_iso.log", "xid_program", "device 0000:38:00.0"),
    ("gpu/xid/gpud_nccl_segfault_dmesg.log", "segfault", "process 2536443"),
    ("gpu/xid/gpud_peermem_kmsg.log", "device_memory_unmapped", ""),
    ("gpu/fabricmanager.log", "nvswitch_error", ""),
    # Labelled as ended, without a word of it in the log: a hang that wrote nothing, notes about runs.
    ("stdout/megatron/bloom176b_hang_at_eval_45000.log", None, ""),
    ("stdout/modded/nebius_candidate07_infrastructure-failure.txt", None, ""),
    ("crash_refs/nvrx_gpu_error_2nd_fault_injection.log", None, ""),
]

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the folder of real logs beside the repository")


def read(name):
    """Return the events of a file, in blocks that are cut at line ends."""
    reader = ErrorReader()
    data = clean((DATA / name).read_bytes())
    found, start = [], 0
    while start < len(data):
        end = data.find(b"\n", start + (1 << 16)) + 1 or len(data)
        found += [event for _, event in reader.scan(data[start:end])]
        start = end
    return found


@needs_data
@pytest.mark.parametrize(("name", "cause", "place"), ENDED, ids=[row[0] for row in ENDED])
def test_what_ended_a_real_run_is_found(name, cause, place):
    """Every log that is labelled with a crash, a hang or a stop has the root cause that it tells, and its place."""
    best = root_cause(read(name))
    assert (best and best.fields["cause"]) == cause
    if best is not None:
        assert place in best.fields["place"]


def others():
    """Return the text files of the manifest that did not end with an error."""
    if not DATA.is_dir():
        return []
    with (DATA / "MANIFEST.tsv").open(newline="") as file:
        names = [row["file"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    known = {row[0] for row in ENDED}
    return [name for name in names if Path(name).suffix in TEXT and name not in known]


@needs_data
def test_no_healthy_file_has_a_root_cause():
    """Neither healthy runs nor those whose trouble is in their numbers: curves, tables, JSON, boots of kernels."""
    wrong = {name: best.fields["text"] for name in others() if (best := root_cause(read(name))) is not None}
    assert wrong == {}
    assert len(others()) > 150
