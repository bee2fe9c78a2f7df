"""Settings: file < environment < flags, and one clear line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.config import ConfigError, load

CONFIGS = Path(__file__).parent / "configs"

MISTAKES = {
    "unknown_key": "web.listen_adress: unknown key, expected one of listen_address, config_file",
    "unknown_section": "wbe: unknown key, expected one of web, spool, collect, devices, network",
    "interval_without_unit_word": (
        """collect.interval: expected a duration such as "5s", "1m" or "0.5s", found 'five'"""
    ),
    "interval_too_long": "collect.interval: expected at most 60, found '10m'",
    "not_yaml": "not valid YAML: while parsing a flow sequence",
    "a_list": "expected sections such as web: and collect:, found a list",
    "section_is_a_number": "web: expected a section with keys, found 5",
    "folders_is_a_number": "spool.folders: expected a list, found 7",
    "source_is_a_number": 'sources.paths.1: expected a path such as "/logs/*.log", or a section with a path, found 5',
    "source_has_an_unknown_key": "sources.paths.0.formt: unknown key, expected one of path, run, format",
    "source_without_a_path": "sources.paths.0.path: expected a value for it, found {'run': 'llama'}",
    "source_rate_is_no_size": (
        """sources.rate: expected a number of bytes such as "500kB", "10MB" or "64MiB", found 'fast'"""
    ),
}


def test_every_bad_file_has_its_message():
    """A file in configs/ without an expected message would test nothing."""
    assert {path.stem for path in CONFIGS.glob("*.yml")} == set(MISTAKES)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_names_file_key_and_expectation(name):
    """Each bad file ends the start with one line."""
    path = str(CONFIGS / f"{name}.yml")

    with pytest.raises(ConfigError) as caught:
        load(path, {}, {})

    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: {MISTAKES[name]}")


@pytest.mark.parametrize("key", ["network.sysfs", "kernel.path"])
def test_an_empty_path_is_a_mistake(key):
    """It would mean the root of all files, or nothing."""
    with pytest.raises(ConfigError) as caught:
        load(None, {}, {key: ""})

    assert str(caught.value).endswith(f"{key}: expected a text that is not empty, found ''")


def test_a_missing_file_is_one_line():
    """A file that is not there is named."""
    with pytest.raises(ConfigError, match=r"^/nowhere/x\.yml: No such file or directory$"):
        load("/nowhere/x.yml", {}, {})


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path):
    """Each source overrides the one before."""
    file = tmp_path / "trainvitals.yml"
    file.write_text("collect: {interval: 1s, timeout: 1s}\nspool: {keep: 1m}\n")
    environ = {"TRAINVITALS_COLLECT_INTERVAL": "2s", "TRAINVITALS_COLLECT_TIMEOUT": "2s"}

    settings = load(str(file), environ, {"collect.interval": "3s", "web.listen_address": None})

    assert (60.0, 2.0, 3.0) == (settings.spool.keep, settings.collect.timeout, settings.collect.interval)
    assert settings.web.listen_address == ":20910"


def test_the_folder_of_the_probe_is_the_folder_of_the_exporter():
    """TRAINVITALS_DIR, which the training reads, is enough for the exporter too."""
    assert ("/spool",) == load(None, {"TRAINVITALS_DIR": "/spool"}, {}).spool.folders


def test_folders_in_the_environment_are_parted_by_colons():
    """As in PATH."""
    settings = load(None, {"TRAINVITALS_SPOOL_FOLDERS": "/a:/b"}, {})

    assert ("/a", "/b") == settings.spool.folders


def test_sources_are_a_list_of_paths_or_sections(tmp_path):
    """A path is enough; a section names run and format."""
    file = tmp_path / "trainvitals.yml"
    file.write_text("sources: ['/logs/*.log', {path: /runs/a, run: llama, format: keras}]")

    paths = load(str(file), {}, {}).sources.paths

    assert [("/logs/*.log", "", ""), ("/runs/a", "llama", "keras")] == [
        (log.path, log.run, log.format) for log in paths
    ]


def test_sizes_are_written_with_units(tmp_path):
    """As bytes, or by thousands or by 1,024."""
    for text, size in (("5000", 5000), ("500kB", 500_000), ("5MB", 5_000_000), ("'2 MiB'", 2_097_152)):
        file = tmp_path / "trainvitals.yml"
        file.write_text(f"sources: {{rate: {text}}}")

        assert size == load(str(file), {}, {}).sources.rate


def test_sources_in_the_environment_are_parted_by_colons(tmp_path):
    """As in PATH; they win over those of the file."""
    file = tmp_path / "trainvitals.yml"
    file.write_text("sources: [/c]")
    environ = {"TRAINVITALS_SOURCES_PATHS": "/a:/b/*", "TRAINVITALS_SOURCES_RATE": "500kB"}

    sources = load(str(file), environ, {}).sources

    assert ["/a", "/b/*"] == [log.path for log in sources.paths]
    assert sources.rate == 500_000


def test_a_bad_flag_is_named():
    """A mistake on the command line names the flag and not a file."""
    with pytest.raises(ConfigError, match=r"^flag --collect\.interval: collect\.interval: expected"):
        load(None, {}, {"collect.interval": "soon"})


def test_a_flag_with_a_name_of_its_own_is_named_by_it():
    """`--simulate-devices` sets devices.simulate."""
    with pytest.raises(ConfigError, match=r"^flag --simulate-devices: devices\.simulate: expected at most 64"):
        load(None, {}, {"devices.simulate": 100})


def test_a_bad_environment_variable_is_named():
    """A mistake in the environment names the variable."""
    with pytest.raises(ConfigError, match=r"^environment variable TRAINVITALS_DEVICES_SIMULATE: devices\.simulate: "):
        load(None, {"TRAINVITALS_DEVICES_SIMULATE": "many"}, {})


def test_rates_are_written_as_pairs_outside_the_file():
    """Patterns and rates in Gb/s, parted by commas; the order is kept, for the first that matches counts."""
    environ = {"TRAINVITALS_NETWORK_EXPECTED_RATE": "mlx5_[89]=200,mlx5_*=400,eth0=2.5"}

    settings = load(None, {**environ, "TRAINVITALS_NETWORK_EXCLUDE": "enx*,mlx5_10"}, {})

    assert list(settings.network.expected_rate.items()) == [("mlx5_[89]", 200.0), ("mlx5_*", 400.0), ("eth0", 2.5)]
    assert settings.network.exclude == ("enx*", "mlx5_10")


@pytest.mark.parametrize("text", ["400", "mlx5_*=", "=400", "mlx5_*=fast", "mlx5_*=0", "mlx5_*=-1", "mlx5_*=1e9"])
def test_a_rate_that_is_none_is_named(text):
    """One line says where the mistake is."""
    with pytest.raises(
        ConfigError, match=r"^environment variable TRAINVITALS_NETWORK_EXPECTED_RATE: network\.expected"
    ):
        load(None, {"TRAINVITALS_NETWORK_EXPECTED_RATE": text}, {})


def test_every_setting_is_documented():
    """docs/settings.md has a row for each key, with its environment variable."""
    from trainvitals.config import Settings

    page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()

    for section, field in Settings.model_fields.items():
        for key in field.annotation.model_fields:
            assert f"| `{section}.{key}` |" in page
            assert f"`TRAINVITALS_{section}_{key}`".upper() in page.upper()


def test_rules_of_detectors_are_kept_as_they_are(tmp_path):
    """The section is handed on: detectors know what may be in it."""
    (tmp_path / "rules.yml").write_text("detectors:\n  loss_spike: {level_errors: 7}\n")

    assert {"loss_spike": {"level_errors": 7}} == load(str(tmp_path / "rules.yml"), {}, {}).detectors.model_extra
