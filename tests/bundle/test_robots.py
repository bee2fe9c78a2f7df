"""Which settings of the notifier `trainvitals up` takes, and whom they name."""

from __future__ import annotations

import pytest

from trainvitals.bundle import robots
from trainvitals.bundle.process import BundleError


def settings_in(folder):
    """Write settings into a folder of settings and return their path."""
    file = folder / "trainvitals" / "notify.yml"
    file.parent.mkdir(parents=True)
    file.write_text("receivers: {team: {targets: []}}")
    return str(file)


def test_the_users_settings_go_before_the_systems(tmp_path):
    """By XDG_CONFIG_HOME, else below the home; where there are none, nothing is found."""
    system = tmp_path / "etc"
    by_home = {"HOME": str(tmp_path / "home")}
    by_name = {**by_home, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert robots.find(by_name, system) is None

    of_system = settings_in(system)
    assert robots.find(by_name, system) == of_system
    of_home = settings_in(tmp_path / "home" / ".config")
    assert (robots.find(by_home, system), robots.find(by_name, system)) == (of_home, of_system)
    of_config = settings_in(tmp_path / "config")
    assert robots.find(by_name, system) == of_config


def test_a_folder_that_is_not_absolute_is_no_place_for_settings(tmp_path, monkeypatch):
    """Without a home nothing below the current folder is taken for one."""
    settings_in(tmp_path / ".config")
    monkeypatch.chdir(tmp_path)

    assert robots.find({}, tmp_path / "etc") is None
    assert robots.find({"XDG_CONFIG_HOME": ".config"}, tmp_path / "etc") is None


def test_receivers_become_addresses(tmp_path, monkeypatch):
    """Alertmanager posts to one for each; a relative name is taken from where one is."""
    (tmp_path / "notify.yml").write_text("receivers: {dingtalk: {}, wecom: {}}\n")
    monkeypatch.chdir(tmp_path)

    found = robots.read("notify.yml")

    assert found.file == f"{tmp_path}/notify.yml"
    assert found.urls("127.0.0.1:20911") == [
        "http://127.0.0.1:20911/alertmanager/dingtalk",
        "http://127.0.0.1:20911/alertmanager/wecom",
    ]


@pytest.mark.parametrize("text", ["", "[]", "receivers:", "receivers: 3", "receivers: {}", "a: [", "\x00"])
def test_what_names_nobody_is_refused_in_one_line(text, tmp_path):
    """With the name of the file."""
    file = tmp_path / "notify.yml"
    file.write_text(text)

    with pytest.raises(BundleError) as error:
        robots.read(str(file))
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    """Whoever names one wants it."""
    with pytest.raises(BundleError, match=r"nowhere\.yml: No such file or directory"):
        robots.read(str(tmp_path / "nowhere.yml"))
