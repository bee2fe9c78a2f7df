"""Finding programs, and saying how to get them."""

from __future__ import annotations

import pytest

from trainvitals.host.programs import ALERTMANAGER, GRAFANA, PROMETHEUS, find, how_to_get, system


def test_a_program_is_found_under_any_of_its_names():
    """Debian's name counts, upstream's comes first."""
    debian = {"prometheus-alertmanager": "/usr/bin/prometheus-alertmanager"}
    both = {**debian, "alertmanager": "/opt/alertmanager"}
    assert find(ALERTMANAGER, debian.get) == "/usr/bin/prometheus-alertmanager"
    assert find(ALERTMANAGER, both.get) == "/opt/alertmanager"
    assert find(PROMETHEUS, {}.get) is None


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ({"ID": "debian"}, "debian"),
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, "debian"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "debian"),
        ({"ID": "fedora"}, ""),
        ({}, ""),
    ],
)
def test_debian_and_what_is_made_of_it_are_known(release, expected):
    """Only there is apt-get the answer."""
    assert system(release) == expected


@pytest.mark.parametrize(
    ("programs", "where", "expected"),
    [
        (
            [PROMETHEUS, ALERTMANAGER],
            "debian",
            "Get Prometheus and Alertmanager with: apt-get install prometheus prometheus-alertmanager",
        ),
        ([ALERTMANAGER], "debian", "Get Alertmanager with: apt-get install prometheus-alertmanager"),
        (
            [PROMETHEUS, ALERTMANAGER],
            "",
            "Get Prometheus and Alertmanager from https://prometheus.io/download/ and put them on PATH.",
        ),
        ([GRAFANA], "debian", "Get Grafana from https://grafana.com/grafana/download and put it on PATH."),
    ],
)
def test_a_missing_program_comes_with_the_way_to_get_it(programs, where, expected):
    """One sentence, one command or one page."""
    assert how_to_get(programs, where) == expected
