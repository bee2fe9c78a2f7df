"""A small cluster as OpenMetrics: runs that are healthy, NaN, stalled, slow or dead, and a node with a sick device.

Every series is held against the catalogue when it is written, so that the demo cannot drift away from the exporter.
Three nodes: "a" and "b" answer, "c" does not.  What Prometheus records itself (rules, ALERTS) is not written here.
"""

from __future__ import annotations

import math

from tests.generate.series import OWN, labels_of

from trainvitals.generate.dashboard_run_checks import SIX
from trainvitals.metrics import STEP_BUCKETS

#: Seconds between samples, and how many there are.
PAUSE, COUNT = 15, 160
A, B, C = "a:20910", "b:20910", "c:20910"
#: The run, the nodes of its ranks 0 and 1.
RUNS = {"healthy": (A, B), "nan": (A, A), "stalled": (B, B), "slow": (A, B), "sick": (B, B), "died": (A, A)}
COLLECTORS = ("devices", "host", "kernel", "network", "ranks", "storage")


class Demo:
    """Collects samples; ``end`` is the time of the last one."""

    def __init__(self, end):
        self.end = end
        self.times = [end - PAUSE * (COUNT - 1 - place) for place in range(COUNT)]
        self.names = set()
        self._lines = []
        for run, nodes in RUNS.items():
            self._run(run, nodes)
        for node in (A, B):
            self._node(node)
        self._devices()
        self._services()

    def text(self):
        """Return the samples as OpenMetrics."""
        return "\n".join([*self._lines, "# EOF\n"])

    def add(self, name, value, /, instance=A, job="trainvitals", **labels):
        """Add a series: ``value`` is a number, or a function of seconds since the beginning."""
        made = {"job": job, "instance": instance, **{key: str(text) for key, text in labels.items()}}
        full = f"trainvitals_{name}" if name not in OWN else name
        assert set(made) == labels_of(full), (full, set(made) ^ labels_of(full))
        self.names.add(full)
        body = ",".join(f'{key}="{text}"' for key, text in made.items())
        for time in self.times:
            now = value(time - self.times[0]) if callable(value) else value
            if now is not None:
                self._lines.append(f"{full}{{{body}}} {now!r} {time}".replace(" nan ", " NaN "))

    def _run(self, run, nodes):
        begin, end = self.times[0], self.end
        stands = run == "stalled"
        for rank, node in enumerate(nodes):
            of = {"instance": node, "run": run, "rank": rank}
            is_dead = run == "died" and rank == 1
            pace = 0.5 if run == "slow" else 1.0

            def step(seconds, pace=pace):
                return math.floor(min(seconds, 600.0 if stands else 1e9) * pace)

            last = begin + 600 if stands else end
            self.add(
                "rank_info",
                1,
                **of,
                local_rank=rank,
                node_rank="",
                attempt=1,
                uuid=f"GPU-{node[0]}{rank}",
                pci_bus_id="",
            )
            self.add(
                "rank_device_info",
                1,
                **of,
                device=rank,
                uuid=f"GPU-{node[0]}{rank}",
                gpu_instance="",
                compute_instance="",
            )
            self.add("rank_up", 0 if is_dead else 1, **of)
            for state in ("running", "finished", "failed", "died"):
                self.add("rank_state", int(state == ("died" if is_dead else "running")), **of, state=state)
            # A second attempt began in the middle, but for the healthy run.
            self.add(
                "start_timestamp_seconds",
                (lambda seconds: begin - 60 if seconds < 900 or run == "healthy" else begin + 900),
                **of,
            )
            self.add("step", step, **of)
            self.add("target_steps", 10000, **of)
            self.add("steps_total", step, **of)
            self.add("last_step_timestamp_seconds", last, **of)
            self.add("heartbeat_timestamp_seconds", end, **of)
            seconds_a_step = 1 / pace
            for bound in (*STEP_BUCKETS, "+Inf"):
                above = bound == "+Inf" or bound >= seconds_a_step
                self.add("step_duration_seconds_bucket", (step if above else 0), **of, le=bound)
            self.add("step_duration_seconds_sum", (lambda s, step=step, pace=pace: step(s) / pace), **of)
            self.add("step_duration_seconds_count", step, **of)
            self.add("nonfinite_steps_total", (lambda s: max(0, s - 1200) if run == "nan" else 0), **of)
            self.add("skipped_steps_total", (lambda s: s // 100), **of)
            self.add("samples_total", (lambda s, step=step: 8 * step(s)), **of)
            self.add("tokens_total", (lambda s, step=step: 4096 * step(s)), **of)
            self.add(
                "loss",
                (lambda s: math.nan if run == "nan" and s > 1200 else 2 + 3 * math.exp(-s / 900)),
                **of,
            )
            self.add("learning_rate", (lambda s: 3e-4 * min(1.0, s / 300)), **of)
            self.add("grad_norm", 0.7 + 0.1 * rank, **of)
            for phase, share in (("train", 0.7), ("data", 0.2 + 0.05 * rank), ("checkpoint", 0.05), ("init", 0.0)):
                self.add("phase", int(phase == "train"), **of, phase=phase)
                self.add("phase_seconds_total", (lambda s, share=share: share * s), **of, phase=phase)
            self.add("checkpoint_step", (lambda s, step=step: step(s) // 100 * 100), **of)
            self.add("checkpoint_timestamp_seconds", (lambda s: begin + s // 300 * 300), **of)
            self.add("checkpoint_duration_seconds", 12 + rank, **of)
            self.add("checkpoints_total", (lambda s: s // 300), **of)
            self.add("checkpoint_failures_total", (lambda s: int(run == "sick" and s > 2000)), **of)
            for name, value in (("loss", 2.5), ("accuracy", 0.6)):
                self.add("evaluation", value + 0.01 * rank, **of, split="validation", name=name)
            self.add("evaluation_step", (lambda s, step=step: step(s) // 200 * 200), **of, split="validation")
            self.add("rank_process_resident_memory_bytes", 3e9, **of)
            self.add("rank_loader_resident_memory_bytes", 1e9, **of)
        for node in set(nodes):
            of = {"instance": node, "run": run}
            self.add("run_info", 1, **of, attempt=1, framework="pytorch", world_size=2)
            self.add("world_size", 2, **of)
            for subject, text in (("code", "1f"), ("settings", f"2{run[0]}")):
                self.add("lineage_info", 1, **of, subject=subject, hash=text)
            self.add("last_change_timestamp_seconds", begin + 300, **of, kind="settings")
            self.add("last_change_info", 1, **of, kind="settings", name="learning_rate", old="1e-4", new="3e-4")
        for signal in {signal for check in SIX for signal in check.signals}:
            active = run == "nan" and signal == "loss_nonfinite"
            self.add("signal_ratio", 2 if active else 0.2, instance=nodes[0], run=run, signal=signal)
        if run == "died":
            for name, value in (("incidents", 1), ("incident_steps_lost", 40), ("incident_seconds_to_recover", 90)):
                self.add(f"{name}_total", value, run=run, cause="process_killed")
        if run == "nan":
            self.add(
                "finding_info",
                1,
                run=run,
                signal="loss_nonfinite",
                category="parameter",
                severity="critical",
                location="rank 0",
                evidence="since step 1201",
            )
            self.add("log_errors_total", 2, run=run, category="parameter", cause="loss_nan")

    def _node(self, node):
        of = {"instance": node}
        end = self.end
        self.add("up", 1, **of)
        self.add("scrape_samples_scraped", 700, **of)
        self.add("scrape_duration_seconds", 0.01, **of)
        self.add("process_resident_memory_bytes", 6e7, **of)
        self.add("process_cpu_seconds_total", (lambda s: 0.02 * s), **of)
        self.add("build_info", 1, **of, version="1.0", python="3.11")
        self.add("snapshot_timestamp_seconds", (lambda s: end - PAUSE * (COUNT - 1) + s - 2), **of)
        for collector in COLLECTORS:
            self.add("collector_success", int((node, collector) != (B, "storage")), **of, collector=collector)
            self.add("collector_duration_seconds", 0.004, **of, collector=collector)
            self.add("series_dropped_total", 0, **of, collector=collector)
        for name in ("records_lost_total", "records_invalid_total", "host_oom_kills_total"):
            self.add(name, 0, **of)
        self.add("values_rejected_total", 1, **of, family="loss")
        self.add("rank_files", 6, **of)
        self.add("rank_files_rejected", 1, **of, reason="version")
        for mode, share in (("user", 3.0), ("iowait", 0.5), ("idle", 12.5)):
            self.add("host_cpu_seconds_total", (lambda s, share=share: share * s), **of, mode=mode)
        self.add("host_memory_total_bytes", 5e11, **of)
        self.add("host_memory_available_bytes", 3e11, **of)
        for resource in ("cpu", "memory", "io"):
            self.add("host_pressure_some_seconds_total", (lambda s: 0.03 * s), **of, resource=resource)
        self.add("host_clock_synchronized", 1, **of)
        self.add("host_clock_max_error_seconds", 0.002, **of)
        for mountpoint, free in (("/", 2e11), ("/data", 4e13)):
            mounted = {**of, "mountpoint": mountpoint}
            self.add("host_filesystem_size_bytes", 5e13, **mounted)
            self.add("host_filesystem_available_bytes", free, **mounted)
            self.add("host_filesystem_files", 1e9, **mounted)
            self.add("host_filesystem_files_free", 9e8, **mounted)
            self.add("host_filesystem_stuck", 0, **mounted)
            # One has become read-only, the other was mounted so.
            is_torn = node == B and mountpoint == "/data"
            self.add("host_filesystem_read_only", (lambda s: int(s > 1800)) if is_torn else int(node == B), **mounted)
            self.add("host_filesystem_probe_duration_seconds", 0.002, **mounted)
        self.add("host_nfs_operations_total", (lambda s: 20 * s), **of, mountpoint="/data")
        self.add("host_nfs_response_seconds_total", (lambda s: 0.1 * s), **of, mountpoint="/data")
        for name, pace in (("read_bytes", 2e8), ("written_bytes", 9e7), ("io_time_seconds", 0.3)):
            self.add(f"host_disk_{name}_total", (lambda s, pace=pace: pace * s), **of, disk="nvme0n1")
        self.add("network_up", 1, **of, interface="eth0")
        self.add("network_enabled", 1, **of, interface="eth0")
        for name, pace in (("receive", 5e7), ("transmit", 3e7)):
            self.add(f"network_{name}_bytes_total", (lambda s, pace=pace: pace * s), **of, interface="eth0")
            self.add(f"infiniband_{name}_bytes_total", (lambda s, pace=pace: 9 * pace * s), **of, hca="mlx5_0", port=1)
        self.add("network_errors_total", (lambda s: s // 600), **of, interface="eth0", kind="rx_errors")
        self.add("infiniband_port_up", int(node == A), **of, hca="mlx5_0", port=1)
        self.add("infiniband_errors_total", (lambda s: s // 60), **of, hca="mlx5_0", port=1, kind="symbol_error")
        self.add("kernel_events_total", (lambda s: int(s > 1500)), **of, kind="pcie_corrected")
        self.add("kernel_event_last_timestamp_seconds", end - 900, **of, kind="pcie_corrected", place="0000:01:00.0")

    def _devices(self):
        for node in (A, B):
            self.add("devices_expected", 2, instance=node, vendor="nvidia")
            self.add("devices_readable", 2 if node == A else 1, instance=node, vendor="nvidia")
            for device in (0, 1):
                self._device(node, device, is_sick=(node, device) == (B, 1))

    def _device(self, node, device, *, is_sick):
        of = {"instance": node, "device": device, "uuid": f"GPU-{node[0]}{device}"}
        self.add("device_up", (lambda s: int(not is_sick or s < 1800)), **of)
        self.add(
            "device_info", 1, **of, vendor="nvidia", name="H200", pci_bus_id=f"0000:0{device}:00.0", driver_version="1"
        )
        if is_sick:
            self.add("device_down_info", (lambda s: 1 if s >= 1800 else None), **of, reason="lost")
            self.add("device_down_since_timestamp_seconds", self.times[0] + 1800, **of)
            of_xid = {**of, "pci_bus_id": "0000:01:00.0", "xid": 79}
            self.add(
                "device_xid_info",
                1,
                **of_xid,
                meaning="fallen off the bus",
                xid_severity="critical",
                xid_category="hardware",
                action="reset the node",
            )

        # What a lost device last said goes stale with it.
        def alive(value):
            return lambda s: None if is_sick and s >= 1800 else value(s) if callable(value) else value

        for name, value in (
            ("utilization_ratio", 0.93),
            ("memory_used_bytes", 1.2e11),
            ("memory_total_bytes", 1.5e11),
            ("temperature_margin_celsius", 9 if device else 4),
            ("recovery_needed", int(is_sick)),
            ("row_remap_pending", int(node == A and device == 0)),
            ("row_remap_failed", 0),
            ("links_up", 18 - device),
            ("links_expected", 18),
            ("links_receive_bytes_per_second", 2e10),
            ("links_transmit_bytes_per_second", 1e10),
            ("pcie_width", 16),
            ("pcie_max_width", 16),
        ):
            self.add(f"device_{name}", alive(value), **of)
        self.add("device_temperature_celsius", alive(68), **of, sensor="gpu")
        self.add("device_power_watts", alive(640), **of, kind="average")
        self.add("device_clock_hertz", alive(1.7e9), **of, clock="sm")
        self.add("device_link_up", 0, **of, link=3)
        for reason in ("idle", "hw_slowdown", "sw_thermal"):
            self.add("device_clock_limited", alive(int(reason == "sw_thermal")), **of, reason=reason)
            self.add("device_clock_limited_seconds_total", (lambda s: 0.1 * s), **of, reason=reason)
        for severity in ("corrected", "uncorrected"):
            self.add("device_ecc_errors_total", (lambda s: s // 300), **of, severity=severity)
        self.add("device_remapped_rows", 1, **of, cause="correctable")
        self.add("device_links_errors_total", (lambda s: s // 120), **of, kind="replay")

    def _services(self):
        self.add("up", 0, instance=C)
        manager = {"instance": "alertmanager:9093", "job": "alertmanager"}
        self.add("alertmanager_notifications_total", (lambda s: s // 60), **manager, integration="email")
        self.add("alertmanager_notifications_failed_total", (lambda s: s // 120), **manager, integration="email")
        self.add("alertmanager_alerts", 3, **manager, state="active")
        notifier = {"instance": "notifier:20911", "job": "notify"}
        self.add("notify_build_info", 1, **notifier, version="1.0")
        self.add("notify_messages_total", (lambda s: s // 60), **notifier, outcome="sent")
        self.add("notify_sent_total", (lambda s: s // 60), **notifier, target="dingtalk")
        self.add("notify_last_success_timestamp_seconds", self.end - 30, **notifier, target="dingtalk")
        self.add("notify_failures_total", (lambda s: s // 900), **notifier, target="dingtalk", reason="throttled")
