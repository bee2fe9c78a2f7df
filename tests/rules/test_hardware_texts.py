"""What alerts about hardware say when all that they look up is there: places, numbers and who is concerned."""

from __future__ import annotations

from tests.rules.test_rules import alert_named, needs_promtool, run_cases, text_case

NODE = 'job="trainvitals",instance="a:20910"'
DEVICE = f'{NODE},device="3",uuid="GPU-3"'
RANK = (
    f'trainvitals_rank_info{{{NODE},run="demo",rank="7",local_rank="3",node_rank="0",attempt="0",uuid="GPU-3",'
    'pci_bus_id="0000:1a:00.0"}'
)


def expect(folder, name, series, labels, **annotations):
    """Run one alert on some series after 20 minutes and compare all of its texts."""
    case = text_case(alert_named(name), "20m", series, {"instance": "a:20910", **labels}, annotations)
    run_cases(folder, {"evaluation_interval": "15s", "tests": [case]}, texts=True)


@needs_promtool
def test_a_fatal_xid_names_what_it_means_and_who_uses_the_device(tmp_path):
    """One that happened hours ago, and one of a program, are not named."""
    place = f'{DEVICE},pci_bus_id="0000:1a:00.0"'
    last, info = "trainvitals_device_xid_last_timestamp_seconds", "trainvitals_device_xid_info"
    series = {
        f"trainvitals_snapshot_timestamp_seconds{{{NODE}}}": "0+15x90",
        f'{last}{{{place},xid="79"}}': "1080x90",
        f'{info}{{{place},xid="79",xid_severity="critical",meaning="GPU has fallen off the bus"}}': "1x90",
        f'{last}{{{place},xid="48"}}': "-9000x90",
        f'{info}{{{place},xid="48",xid_severity="critical",meaning="double bit"}}': "1x90",
        f'{last}{{{place},xid="31"}}': "1080x90",
        f'{info}{{{place},xid="31",xid_severity="warning",meaning="page fault"}}': "1x90",
        RANK: "1x90",
    }
    labels = {"device": "3", "uuid": "GPU-3", "pci_bus_id": "0000:1a:00.0"}

    expect(
        tmp_path,
        "TrainvitalsDeviceFatalXid",
        series,
        labels,
        summary="A device on a:20910 reports a fault after which it cannot go on",
        summary_zh="a:20910 上有设备报告致命故障",
        description="The driver reports of the device at 0000:1a:00.0 (number 3): XID 79 (GPU has fallen off the bus). "
        "Used by: rank 7 of run demo.",
        description_zh="驱动报告位于 0000:1a:00.0 的设备（编号 3）：XID 79。使用者：训练 demo 的 rank 7。",
    )


@needs_promtool
def test_links_that_are_down_are_named(tmp_path):
    """By the numbers that the exporter shows since they broke."""
    series = {
        f"trainvitals_device_links_expected{{{DEVICE}}}": "18x90",
        f"trainvitals_device_links_up{{{DEVICE}}}": "16x90",
        f'trainvitals_device_link_up{{{DEVICE},link="4"}}': "0+0x90",
        f'trainvitals_device_link_up{{{DEVICE},link="11"}}': "0+0x90",
        f'trainvitals_device_link_up{{{DEVICE},link="2"}}': "1x90",
        RANK: "1x90",
    }

    expect(
        tmp_path,
        "TrainvitalsNvlinkDown",
        series,
        {"device": "3", "uuid": "GPU-3"},
        summary="A device on a:20910 has lost links to other devices",
        summary_zh="a:20910 上有设备失去了与其他设备的互联链路",
        description="Links of device 3 (GPU-3) on a:20910 that worked before and do not now: 2 (link 11; link 4). "
        "Used by: rank 7 of run demo.",
        description_zh="a:20910 上的设备 3（GPU-3）有 2 条链路曾经可用、现在不可用：链路 11；链路 4。"
        "使用者：训练 demo 的 rank 7。",
    )


@needs_promtool
def test_a_slow_server_is_named_with_its_times(tmp_path):
    """Of this mount only."""
    mount = f'{NODE},mountpoint="/data"'
    other = f'{NODE},mountpoint="/other"'
    series = {
        f"trainvitals_host_nfs_operations_total{{{mount}}}": "0+150x90",
        f"trainvitals_host_nfs_response_seconds_total{{{mount}}}": "0+300x90",
        f"trainvitals_host_nfs_retransmissions_total{{{mount}}}": "0+15x90",
        f"trainvitals_host_nfs_operations_total{{{other}}}": "0+150x90",
        f"trainvitals_host_nfs_response_seconds_total{{{other}}}": "0+1x90",
        f"trainvitals_host_nfs_retransmissions_total{{{other}}}": "0+0x90",
        f'trainvitals_host_filesystem_info{{{mount},fstype="nfs4",source="files:/data"}}': "1x90",
        f'trainvitals_host_filesystem_info{{{other},fstype="nfs4",source="files:/other"}}': "1x90",
    }

    expect(
        tmp_path,
        "TrainvitalsNfsSlow",
        series,
        {"mountpoint": "/data"},
        summary="The NFS server of /data on a:20910 is slow",
        summary_zh="a:20910 上的 /data 的 NFS 服务器响应慢",
        description="A request takes 2s on average, and 10% of them are sent again. Server: files:/data.",
        description_zh="每个请求平均耗时 2s，其中 10% 需要重发。服务器：files:/data。",
    )


@needs_promtool
def test_a_complaint_of_the_kernel_names_its_places(tmp_path):
    """All disks with the same trouble are one alert."""
    last = "trainvitals_kernel_event_last_timestamp_seconds"
    series = {
        f"trainvitals_snapshot_timestamp_seconds{{{NODE}}}": "0+15x90",
        f'{last}{{{NODE},kind="disk_error",place="sda"}}': "1080x90",
        f'{last}{{{NODE},kind="disk_error",place="nvme1n1"}}': "600x90",
    }

    expect(
        tmp_path,
        "TrainvitalsDiskErrors",
        series,
        {"kind": "disk_error"},
        summary="A disk of node a:20910 fails",
        summary_zh="节点 a:20910 有磁盘出错",
        description="The kernel's log has disk_error, last 2m 0s ago. Where: nvme1n1; sda.",
        description_zh="内核日志中有 disk_error，最近一次在 2m 0s 前。位置：nvme1n1；sda。",
    )


@needs_promtool
def test_a_faulty_device_has_its_codes(tmp_path):
    """Those of this device, in the maker's spelling."""
    health, fault = "trainvitals_device_health_state", "trainvitals_device_fault_info"
    series = {
        f'{health}{{{DEVICE},state="critical"}}': "1x90",
        f'{fault}{{{DEVICE},code="80E01801"}}': "1x90",
        f'{fault}{{{NODE},device="4",uuid="GPU-4",code="8C1F2000"}}': "1x90",
        RANK: "1x90",
    }

    expect(
        tmp_path,
        "TrainvitalsDeviceUnhealthy",
        series,
        {"device": "3", "uuid": "GPU-3"},
        summary="The driver calls a device on a:20910 faulty",
        summary_zh="驱动报告 a:20910 上有设备故障",
        description="Health of device 3 (GPU-3) on a:20910: critical. Faults: 80E01801. Used by: rank 7 of run demo.",
        description_zh="a:20910 上的设备 3（GPU-3）的健康状态为 critical。故障码：80E01801。"
        "使用者：训练 demo 的 rank 7。",
    )
