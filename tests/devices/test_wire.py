"""The lines between the reading process and the exporter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.devices.wire import DRIVER, LONGEST_LINE, Lines, Message, decode, encode
from trainvitals.telemetry import DeviceProcess, DeviceSample, Fault

FULL = DeviceSample(
    index=7,
    uuid="GPU-1",
    vendor="nvidia",
    name="NVIDIA H200",
    pci_bus_id="0000:1a:00.0",
    driver_version="570.1",
    up=True,
    values={
        ("utilization_ratio",): 0.0,
        ("memory_used_bytes",): 1e9,
        ("temperature_celsius", "gpu"): 40.0,
        ("temperature_celsius", "memory"): 55.0,
        ("link_errors_total", "3", "replay"): 2.0,
    },
    processes=(DeviceProcess(4711, 5e9, ("1", "0")), DeviceProcess(4712, None, None)),
    failed={"unknown": 2},
)
EMPTY = DeviceSample(index=0, uuid="", vendor="nvidia", up=False, reason="lost")
FAULT = Fault("driver", "0000:1a:00.0", 79, 1.5e9, "fallen")


@pytest.mark.parametrize(
    "message",
    [
        Message(devices=[FULL, EMPTY]),
        Message(devices=[EMPTY], faults=[FAULT], count=8),
        Message(devices=[EMPTY], count=0),
        Message(),
        Message(at=0),
        Message(at=DRIVER),
        Message(down="driver_not_loaded"),
        Message(absent="no library"),
    ],
    ids=["devices", "faults", "count", "no device", "at", "driver", "down", "absent"],
)
def test_a_message_survives_the_way(message):
    """What was encoded is decoded to the same, zeros and absences included."""
    assert decode(encode(message), "nvidia") == message


def test_what_is_absent_is_not_written():
    """A value that could not be read takes no room, a zero does."""
    assert encode(Message(devices=[EMPTY])) == b'{"devices":[{"index":0,"up":false,"reason":"lost"}]}\n'
    assert json.loads(encode(Message(devices=[FULL])))["devices"][0]["values"][0] == ["utilization_ratio", 0.0]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b"null",
        b'{"devices":[],"down":"x"}',
        b'{"other":"x"}',
        b'{"down":7}',
        b'{"devices":{}}',
        b'{"devices":[7]}',
        b'{"devices":[],"count":-1}',
        b'{"devices":[],"count":true}',
        b'{"devices":[],"count":null}',
        b'{"devices":[],"count":0,"faults":[],"at":0}',
        b'{"at":-2}',
        b'{"at":-1.0}',
        b'{"devices":[{"up":true}]}',
        b'{"devices":[{"index":true,"up":true}]}',
        b'{"devices":[{"index":-1,"up":true}]}',
        b'{"devices":[{"index":0,"up":1}]}',
        b'{"devices":[{"index":0,"up":true,"uuid":5}]}',
        b'{"devices":[{"index":0,"up":true,"values":{}}]}',
        b'{"devices":[{"index":0,"up":true,"values":[7]}]}',
        b'{"devices":[{"index":0,"up":true,"values":[[5]]}]}',
        b'{"devices":[{"index":0,"up":true,"values":[[5,5]]}]}',
        b'{"devices":[{"index":0,"up":true,"values":[["power_watts","5"]]}]}',
        b'{"devices":[{"index":0,"up":true,"values":[["power_watts",true]]}]}',
        b'{"devices":[{"index":0,"up":true,"values":[["power_watts",1' + 400 * b"0" + b"]]}]}",
        b'{"devices":[{"index":0,"up":true,"processes":[[0,null,null]]}]}',
        b'{"devices":[{"index":0,"up":true,"processes":[[1,"much",null]]}]}',
        b'{"devices":[{"index":0,"up":true,"processes":[[1,null,["1"]]]}]}',
        b'{"devices":[],"faults":[["0000:1a:00.0","79",1.5,""]]}',
        b'{"devices":[],"faults":[["0000:1a:00.0",79,1.5]]}',
        b'{"faults":[]}',
        b'{"at":true}',
        b'{"devices":[{"index":0,"up":true,"failed":{"x":NaN}}]}',
        b'{"devices":[{"index":0,"up":true,"failed":{"x":-1}}]}',
        b'{"devices":[{"index":0,"up":true,"failed":{"x":Infinity}}]}',
        b'{"devices":' + 100_000 * b"[" + b"}",
        b"\xff\xfe",
    ],
)
def test_nonsense_is_a_value_error(line):
    """A line that encode() would not have written is refused as a whole."""
    with pytest.raises(ValueError):  # noqa: PT011  # Which of the many it is does not matter.
        decode(line, "nvidia")


def test_sizes_are_bounded():
    """Texts are cut, and there are not more devices or entries than a node can have."""
    long = decode(b'{"devices":[{"index":0,"up":true,"name":"' + 1000 * b"x" + b'"}]}', "nvidia")
    device = b'{"index":0,"up":true}'
    values = b",".join(b'["x","%d",1]' % number for number in range(4097))

    assert long.devices[0].name == 256 * "x"
    with pytest.raises(ValueError, match="too long"):
        decode(b'{"devices":[' + b",".join([device] * 257) + b"]}", "nvidia")
    with pytest.raises(ValueError, match="too long"):
        decode(b'{"devices":[{"index":0,"up":true,"values":[' + values + b"]}]}", "nvidia")


@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "devices",
                            "index",
                            "up",
                            "failed",
                            "uuid",
                            "down",
                            "at",
                            "count",
                            "faults",
                            "values",
                            "processes",
                        ]
                    ),
                    inner,
                    max_size=4,
                )
            ),
        ).map(lambda document: json.dumps(document).encode()),
    )
)
def test_no_line_raises_anything_else(line):
    """For any bytes there is a message or a ValueError."""
    try:
        message = decode(line, "nvidia")
    except ValueError:
        return
    assert isinstance(message, Message)


def test_lines_are_put_together():
    """Pieces of lines become lines, whatever the cuts."""
    lines = Lines()

    assert list(lines.feed(b"one\ntw")) == [b"one"]
    assert list(lines.feed(b"o")) == []
    assert list(lines.feed(b"\n\nthree\n")) == [b"two", b"", b"three"]


def test_a_line_without_end_is_refused():
    """What has no end is not kept in memory."""
    lines = Lines()
    list(lines.feed(b"x" * LONGEST_LINE))

    with pytest.raises(ValueError, match="without end"):
        list(lines.feed(b"x"))
