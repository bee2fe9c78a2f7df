"""The template of the fleet's benchmark: many nodes that show what one exporter showed, and go on."""

from __future__ import annotations

import re

import pytest
from benchmarks.fleet_node import Scrape, look
from benchmarks.fleet_template import Place, Template

from trainvitals.metrics import FAMILIES

EARLY = """\
# HELP trainvitals_steps_total Steps, 100% of them.
# TYPE trainvitals_steps_total counter
trainvitals_steps_total{rank="0",run="fleet"} 100.0
trainvitals_steps_total{rank="1",run="fleet"} 200.0
# TYPE trainvitals_phase_seconds_total counter
trainvitals_phase_seconds_total{phase="data",rank="1",run="fleet"} 1.25
# TYPE trainvitals_step gauge
trainvitals_step{rank="0",run="fleet"} 100.0
# TYPE trainvitals_loss gauge
trainvitals_loss{rank="0",run="fleet"} 2.5
# TYPE trainvitals_device_up gauge
trainvitals_device_up{device="0",uuid="GPU-a"} 1.0
# TYPE trainvitals_device_link_transmit_bytes_total counter
trainvitals_device_link_transmit_bytes_total{device="0",link="3",uuid="GPU-a"} 1000.0
# TYPE trainvitals_snapshot_timestamp_seconds gauge
trainvitals_snapshot_timestamp_seconds 999.5
# TYPE trainvitals_start_timestamp_seconds gauge
trainvitals_start_timestamp_seconds{rank="0",run="fleet"} 500.0
"""
LATE = (
    EARLY.replace("100.0", "120.0")
    .replace("200.0", "210.0")
    .replace("1.25", "1.75")
    .replace(" 2.5", " NaN")
    .replace("999.5", "1009.25")
)


@pytest.fixture
def template():
    """A template of two scrapes, ten seconds apart."""
    return Template([Scrape(1000.0, EARLY), Scrape(1010.0, LATE)])


def test_labels_are_those_of_the_node_and_values_go_on(template):
    """Counters keep their pace, times follow the clock, other values take turns, and what stands still does."""
    expected = """\
# HELP trainvitals_steps_total Steps, 100% of them.
# TYPE trainvitals_steps_total counter
trainvitals_steps_total{rank="16",run="fleet-3"} 160
trainvitals_steps_total{rank="17",run="fleet-3"} 230
# TYPE trainvitals_phase_seconds_total counter
trainvitals_phase_seconds_total{phase="data",rank="17",run="fleet-3"} 2.75
# TYPE trainvitals_step gauge
trainvitals_step{rank="16",run="fleet-3"} 160
# TYPE trainvitals_loss gauge
trainvitals_loss{rank="16",run="fleet-3"} NaN
# TYPE trainvitals_device_up gauge
trainvitals_device_up{device="0",uuid="GPU-a-50"} 1.0
# TYPE trainvitals_device_link_transmit_bytes_total counter
trainvitals_device_link_transmit_bytes_total{device="0",link="3",uuid="GPU-a-50"} 1300
# TYPE trainvitals_snapshot_timestamp_seconds gauge
trainvitals_snapshot_timestamp_seconds 1029.25
# TYPE trainvitals_start_timestamp_seconds gauge
trainvitals_start_timestamp_seconds{rank="16",run="fleet-3"} 500.0
"""

    assert expected == template.at(Place(node=50, run=3, first_rank=16), 1030.0, 1)


def test_the_series_of_ranks_and_nodes_are_counted(template):
    """Six of nine have the label rank."""
    assert (9, 2, 6) == (template.series, template.ranks, template.series_of_ranks)


def test_a_line_that_is_no_series_is_refused():
    """A template that guesses would show what no exporter does."""
    with pytest.raises(ValueError, match="not a line of a scrape: 'trainvitals_step'"):
        Template([Scrape(1000.0, "trainvitals_step\n")])


def series_of(text):
    """Return the values of a scrape by series."""
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_nodes_of_the_real_exporter_differ_in_run_rank_and_devices_only():
    """One look at the real exporter with two ranks gives as many nodes as are asked for."""
    seen = look(2, 64, count=2, steps=3, simulated=2)
    template = Template(seen)
    place, other = Place(5, 0, 10), Place(40, 1, 16)
    text = template.at(place, seen[-1].time + 60, 0)
    here, there = series_of(text), series_of(template.at(other, seen[-1].time + 60, 0))
    later = series_of(template.at(place, seen[-1].time + 120, 0))

    assert {"10", "11"} == set(re.findall(r'[{,]rank="(\d+)"', text))
    assert {"fleet-0"} == set(re.findall(r'[{,]run="([^"]+)"', text))
    assert {"SIMULATED-0-5", "SIMULATED-1-5"} == set(re.findall(r'[{,]uuid="([^"]+)"', text))
    assert not [name for name in here.keys() & there.keys() if re.search(r'[{,](run|uuid)="', name)]
    assert len(series_of(seen[-1].text)) == len(here) == len(there) == template.series
    assert 1 < later['trainvitals_step{rank="10",run="fleet-0"}'] - here['trainvitals_step{rank="10",run="fleet-0"}']
    known = {re.sub(r"_(bucket|sum|count)$", "", name) for name in template.names if name.startswith("trainvitals_")}
    assert known <= FAMILIES.keys()
