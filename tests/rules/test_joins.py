"""The queries of docs/attribution.md and docs/host.md, run by promtool on written series."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests.rules.test_rules import needs_promtool, promtool

from trainvitals.metrics import FAMILIES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("attribution.md", "host.md")

A = 'instance="n1",device="0",uuid="GPU-a"'
B = 'instance="n1",device="1",uuid="GPU-b"'
SPLIT = 'instance="n1",device="2",uuid="GPU-s"'
WHOLE = 'gpu_instance="",compute_instance=""'

#: Two jobs share the second GPU; the same device numbers exist on another node.
SERIES = {
    f"trainvitals_device_utilization_ratio{{{A}}}": 0.9,
    f"trainvitals_device_utilization_ratio{{{B}}}": 0.01,
    'trainvitals_device_utilization_ratio{instance="n2",device="0",uuid="GPU-c"}': 0.5,
    f'trainvitals_device_power_watts{{{A},kind="instant"}}': 600,
    f'trainvitals_device_power_watts{{{A},kind="average"}}': 555,
    f'trainvitals_device_power_watts{{{B},kind="instant"}}': 90,
    f'trainvitals_rank_device_info{{{A},{WHOLE},run="big",rank="7"}}': 1,
    f"trainvitals_device_utilization_ratio{{{SPLIT}}}": 0.25,
    f'trainvitals_device_mig_sm_activity_ratio{{{SPLIT},gpu_instance="3"}}': 0.75,
    f'trainvitals_device_mig_sm_activity_ratio{{{SPLIT},gpu_instance="4"}}': 0.5,
    f'trainvitals_rank_device_info{{{SPLIT},gpu_instance="3",compute_instance="0",run="small",rank="0"}}': 1,
    f'trainvitals_device_slurm_job_info{{{A},{WHOLE},slurm_job_id="55",slurm_user="alice"}}': 1,
    f'trainvitals_device_slurm_job_info{{{B},{WHOLE},slurm_job_id="55",slurm_user="alice"}}': 1,
    f'trainvitals_device_slurm_job_info{{{B},{WHOLE},slurm_job_id="56",slurm_user="bob"}}': 1,
    'trainvitals_rank_slurm_job_info{instance="n1",run="big",rank="7",slurm_job_id="55",slurm_step_id="0"}': 1,
    'trainvitals_rank_up{instance="n1",run="big",rank="7"}': 1,
    f'trainvitals_device_process_memory_bytes{{{A},run="big",rank="7"}}': 7e10,
    f'trainvitals_device_process_memory_bytes{{{A},run="",rank=""}}': 3e9,
    f'trainvitals_device_process_memory_bytes{{{B},run="",rank=""}}': 5e8,
    f'trainvitals_device_container_info{{{A},{WHOLE},pod_uid="0f8a",container_id="4f",runtime="containerd"}}': 1,
    f'trainvitals_device_container_info{{{B},{WHOLE},pod_uid="",container_id="5f",runtime="docker"}}': 1,
    'kube_pod_info{uid="0f8a",pod="train-0",namespace="ml"}': 1,
    'trainvitals_rank_cgroup_memory_used_bytes{instance="n1",run="big",rank="7"}': 48,
    'trainvitals_rank_cgroup_memory_limit_bytes{instance="n1",run="big",rank="7"}': 64,
    'trainvitals_host_clock_max_error_seconds{instance="n1"}': 0.5,
    'trainvitals_host_clock_max_error_seconds{instance="n2"}': 0.001,
}
#: Per second.
COUNTERS = {
    'trainvitals_rank_loader_cpu_seconds_total{instance="n1",run="big",rank="7"}': 6,
    'trainvitals_host_cpu_seconds_total{instance="n1",mode="idle"}': 20,
    'trainvitals_host_cpu_seconds_total{instance="n1",mode="user"}': 44,
    'trainvitals_host_pressure_full_seconds_total{instance="n1",resource="io"}': 0.25,
}

EXPECTED = {
    "Utilization by run and rank": {
        f'{{{A},run="big",rank="7"}}': 0.9,
        f'{{{SPLIT},gpu_instance="3",compute_instance="0",run="small",rank="0"}}': 0.25,
    },
    "Activity of the instance that a rank has of a split GPU": {
        f'{{{SPLIT},gpu_instance="3",compute_instance="0",run="small",rank="0"}}': 0.75
    },
    "Power of each Slurm job, in watts": {
        '{slurm_job_id="55",slurm_user="alice"}': 690,
        '{slurm_job_id="56",slurm_user="bob"}': 90,
    },
    "GPUs that a job was given and does not use": {
        f'{{{B},slurm_job_id="55",slurm_user="alice"}}': 0.01,
        f'{{{B},slurm_job_id="56",slurm_user="bob"}}': 0.01,
    },
    "The job of each run": {'{instance="n1",run="big",rank="7",slurm_job_id="55",slurm_step_id="0"}': 1},
    "Memory that is held by none of our ranks": {f'trainvitals_device_process_memory_bytes{{{A},run="",rank=""}}': 3e9},
    "The pod of each device, by the name that kube-state-metrics knows": {
        f'{{{A},pod_uid="0f8a",container_id="4f",runtime="containerd",uid="0f8a",pod="train-0",namespace="ml"}}': 1
    },
    "CPUs that the loaders of a rank use, and those that are left on the node": {'{run="big",rank="7"}': 6},
    "": {'{instance="n1"}': 20},
    "Share of the time in which everything waited for disks": {'{instance="n1",resource="io"}': 0.25},
    "How near a job is to the limit that would kill it": {'{instance="n1",run="big",rank="7"}': 0.75},
    "Clocks of the nodes that differ by more than 10 ms may have": {
        'trainvitals_host_clock_max_error_seconds{instance="n1"}': 0.5
    },
}


def queries():
    """Return the queries of both pages by what stands above them; one after another has no title."""
    found = {}
    for page in PAGES:
        for block in re.findall(r"```promql\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
            title, lines = "", []
            for line in [*block.splitlines(), "#"]:
                starts = not line.startswith((" ", ")"))
                if starts and lines:
                    found[title] = "\n".join(lines)
                    title, lines = "", []
                if line.startswith("#"):
                    title = line.removeprefix("#").strip()
                elif line:
                    lines.append(line)
    return found


def test_every_query_is_tried():
    """And nothing else is."""
    assert set(queries()) == set(EXPECTED)


@needs_promtool
@pytest.mark.parametrize("title", EXPECTED)
def test_a_query_gives_what_it_says(title, tmp_path):
    """With two jobs on one device, and the same numbers of devices on another node."""
    series = [{"series": name, "values": f"{value}x60"} for name, value in SERIES.items()]
    series += [{"series": name, "values": f"0+{value * 15}x60"} for name, value in COUNTERS.items()]
    samples = [{"labels": labels, "value": value} for labels, value in EXPECTED[title].items()]
    case = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [{"expr": queries()[title], "eval_time": "10m", "exp_samples": samples}],
    }
    (tmp_path / "cases.yml").write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))

    promtool("test", "rules", "cases.yml", cwd=tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_families_that_exist(page):
    """A query with a typo would give nothing, for ever."""
    text = (DOCS / page).read_text()

    for name in set(re.findall(r"trainvitals_[a-z0-9_]+", text)):
        known = any(family == name or family.startswith(name) for family in FAMILIES)
        assert known, name
