"""docker-compose.yml as text: what a review would look for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
#: What a person types; a port or an image is changed by a variable, never by an edit.
PORTS = {"exporter": 20910, "prometheus": 9090, "alertmanager": 9093, "grafana": 3000, "notifier": 20911}
_VARIABLE = re.compile(r"^\$\{(TRAINVITALS_[A-Z_]+):-(.+)\}$")
_PINNED = re.compile(r"^[a-z0-9./-]+:v?\d+\.\d+[\w.-]*$")


def text_of(value):
    """Return every string in a document, one a line."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {text_of(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "\n".join(map(text_of, value))
    return str(value)


def default_of(text):
    """Return the default of a value that is one variable."""
    found = _VARIABLE.match(text)
    assert found, f"{text}: expected ${{TRAINVITALS_...:-default}}"
    return found[2]


@pytest.fixture(params=sorted(SERVICES))
def service(request):
    """Each service by itself: name and definition."""
    return request.param, SERVICES[request.param]


def test_it_has_the_services_and_profiles_that_the_documentation_promises():
    """Without a profile the four servers start; training and inbox, GPU exporter and notifier wait for theirs."""
    assert {name: service.get("profiles", []) for name, service in SERVICES.items()} == {
        "exporter": [],
        "exporter-gpu": ["gpu"],
        "demo": ["demo"],
        "inbox": ["demo"],
        "prometheus": [],
        "alertmanager": [],
        "notifier": ["notify"],
        "grafana": [],
    }


def test_it_keeps_to_what_both_generations_of_compose_know():
    """docker-compose 1.29 refuses a top-level name and the short gpus; v2 warns about a version."""
    assert set(COMPOSE) == {"x-hardened", "x-trainvitals", "services", "secrets", "volumes"}
    assert not any("gpus" in service for service in SERVICES.values())


def test_images_are_pinned_or_built_here(service):
    """A tag names a release, never latest, and a variable lets a site take its mirror or a digest."""
    _, definition = service
    image = default_of(definition["image"])
    built = {other["image"] for other in SERVICES.values() if "build" in other}
    if definition["image"] in built:
        assert image == "trainvitals:local"
    else:
        assert _PINNED.match(image), image


def test_the_base_image_is_pinned():
    """Both stages start from one pinned tag."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("FROM")] == [
        "FROM ${PYTHON_IMAGE} AS build",
        "FROM ${PYTHON_IMAGE}",
    ]
    assert _PINNED.match(next(line.partition("=")[2] for line in lines if line.startswith("ARG PYTHON_IMAGE")))


def test_ports_are_on_loopback_and_can_be_moved(service):
    """Nothing is published to the network, and the defaults are those of the documentation."""
    name, definition = service
    ports = definition.get("ports", [])
    expected = [f"127.0.0.1:${{TRAINVITALS_{name.upper()}_PORT:-{PORTS[name]}}}:{PORTS[name]}"] if name in PORTS else []
    assert ports == expected


def test_every_service_has_a_health_check(service):
    """The check is a program and its arguments, not a line for a shell, and it is bounded."""
    _, definition = service
    check = definition["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)


def test_every_dependency_names_its_condition(service):
    """A service that needs another says whether started is enough."""
    _, definition = service
    for needed, how in definition.get("depends_on", {}).items():
        assert needed in SERVICES
        assert how["condition"] in ("service_healthy", "service_started")


def test_services_have_no_rights_that_they_do_not_need(service):
    """No root, no writable image, no capability, nothing of the host's but what is mounted."""
    _, definition = service
    user = definition["user"].split(":")[0]
    assert user.isdigit()
    assert int(user) > 0
    assert definition["read_only"] is True
    assert definition["cap_drop"] == ["ALL"]
    assert definition["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "network_mode", "pid", "ipc", "cap_add", "devices", "env_file"} & set(definition)
    assert "docker.sock" not in text_of(definition)


def test_logs_are_rotated(service):
    """A log never fills the disk of a training node."""
    _, definition = service
    assert definition["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


def test_mounts_are_folders_of_the_repository_or_named_volumes(service):
    """A folder is mounted read-only, and it exists; anything that is written goes to a declared volume."""
    _, definition = service
    for mount in definition.get("volumes", []):
        if mount.startswith("./"):
            source, _, mode = mount.split(":")
            assert (ROOT / source).is_dir(), source
            assert mode == "ro"
        else:
            source = re.sub(r"^\$\{[A-Z_]+:-(\w+)\}", r"\1", mount).split(":")[0]
            assert source in COMPOSE["volumes"]


def test_the_spool_is_shared_memory_for_everybody():
    """Trainer and exporter mount one tmpfs: every user may write, and only its owner removes another's files."""
    options = COMPOSE["volumes"]["spool"]["driver_opts"]
    owner = SERVICES["exporter"]["user"].split(":")[0]
    assert options["type"] == "tmpfs"
    assert {"mode=1777", f"uid={owner}"} <= set(options["o"].split(","))
    for service in ("exporter", "demo"):
        assert "${TRAINVITALS_SPOOL:-spool}:/spool" in SERVICES[service]["volumes"]


def test_what_is_remembered_is_in_a_volume_that_the_image_gives_to_its_user():
    """The image is read-only; a new volume takes the owner of the folder that it is mounted on."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for service in ("exporter", "notifier"):
        definition = SERVICES[service]
        folder = definition["environment"]["STATE_DIRECTORY"]
        owner = definition["user"].split(":")[0]
        assert f"{service}:{folder}" in definition["volumes"]
        assert f'"--owner={owner}", "--group={owner}", "{folder}"]' in dockerfile


def test_secrets_come_from_files_that_are_not_committed():
    """A password is read from a secret file, whose place git ignores; a missing one ends the start of Grafana."""
    for name, secret in COMPOSE["secrets"].items():
        assert secret == {"file": f"${{TRAINVITALS_SECRETS:-./deploy/docker/secrets}}/{name}"}
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", [])}
    assert used == set(COMPOSE["secrets"])
    for definition in SERVICES.values():
        for key, value in definition.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN", key):
                # GF_..__FILE would fall back to admin/admin when the file is missing.
                assert value == "$$__file{/run/secrets/grafana_admin_password}"
    ignored = (ROOT / "deploy/docker/secrets/.gitignore").read_text(encoding="utf-8").split("\n")
    assert "*" in ignored


def test_the_demo_gets_what_the_shipped_settings_post():
    """The inbox is called as the webhook that nobody has changed, which resolves nowhere else, and is not published."""
    service = SERVICES["inbox"]
    config = yaml.safe_load((ROOT / "deploy/alertmanager/alertmanager.yml").read_text(encoding="utf-8"))
    [webhook] = config["receivers"][0]["webhook_configs"]
    host, _, port = webhook["url"].split("/")[2].partition(":")

    assert service["networks"]["default"]["aliases"] == [host]
    assert service["entrypoint"][-1] == f"0.0.0.0:{port}"
    assert "ports" not in service


def test_the_notifier_finds_its_settings_and_the_secrets_that_they_name():
    """What compose mounts is what the shipped settings read, and Alertmanager's example posts to what they receive."""
    from trainvitals.notify.command import LISTEN
    from trainvitals.notify.settings import load

    service = SERVICES["notifier"]
    flags = dict(flag.split("=", 1) for flag in service["command"][1:])
    mounted = dict(mount.split(":")[:2][::-1] for mount in service["volumes"])
    folder, _, name = flags["--config.file"].rpartition("/")
    settings = load(str(ROOT / mounted[folder] / name))
    named = {
        value
        for receiver in settings.receivers.values()
        for target in receiver.targets
        for key, value in target.items()
        if key.endswith("_file")
    }
    (example,) = yaml.safe_load((ROOT / "deploy/alertmanager/receivers/robots.yml").read_text(encoding="utf-8"))

    assert named == {f"/run/secrets/{secret}" for secret in service["secrets"]}
    assert flags["--web.listen-address"].rpartition(":")[2] == LISTEN.rpartition(":")[2]
    assert {config["url"] for config in example["webhook_configs"]} == {
        f"http://notifier:20911/alertmanager/{receiver}" for receiver in settings.receivers
    }


def test_grafana_keeps_the_data_source_of_its_image():
    """On a read-only image an update of a bundled plugin fails and takes the data source away: there is none."""
    assert SERVICES["grafana"]["read_only"] is True
    assert SERVICES["grafana"]["environment"]["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"


def test_a_gpu_is_reserved_in_its_profile_only():
    """A machine without a GPU starts everything else, and the GPU exporter asks for NVML alone."""
    reserving = [name for name, service in SERVICES.items() if "deploy" in service]
    assert reserving == ["exporter-gpu"]
    assert SERVICES["exporter-gpu"]["profiles"] == ["gpu"]
    devices = SERVICES["exporter-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu", "utility"]}]


def test_prometheus_bounds_what_it_keeps():
    """Both a time and a size end the history."""
    flags = dict(flag.split("=", 1) for flag in SERVICES["prometheus"]["command"])
    assert flags["--storage.tsdb.retention.time"] == "${TRAINVITALS_RETENTION:-30d}"
    assert flags["--storage.tsdb.retention.size"] == "${TRAINVITALS_RETENTION_SIZE:-10GB}"


def test_every_variable_is_documented():
    """docs/docker.md names each variable of docker-compose.yml, and none that is gone."""
    pattern = re.compile(r"TRAINVITALS_[A-Z_]+(?=:-)")
    used = set(pattern.findall((ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    page = (ROOT / "docs/docker.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(TRAINVITALS_[A-Z_]+)`", page, re.MULTILINE))
    assert documented == used


@pytest.mark.parametrize("command", [["docker", "compose"], ["docker-compose"]], ids=["v2", "1.29"])
def test_compose_accepts_it(command):
    """Whichever compose is installed reads the file, with every profile, without an engine."""
    if (
        shutil.which(command[0]) is None
        or subprocess.run([*command, "version"], check=False, capture_output=True).returncode
    ):
        pytest.skip(f"{' '.join(command)} is not installed")
    profiles = [f"--profile={name}" for name in ("demo", "gpu", "notify")]
    arguments = [*profiles, "-f", str(ROOT / "docker-compose.yml"), "config", "-q"]
    done = subprocess.run([*command, *arguments], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_two_exporters_share_the_sources():
    """With the profile gpu each source is read once: devices and their faults there, everything else beside it."""
    from trainvitals.config import ConfigError, load
    from trainvitals.daemon import Exporter

    disabled = SERVICES["exporter-gpu"]["environment"]["TRAINVITALS_COLLECT_DISABLE"]
    with pytest.raises(ConfigError) as error:
        Exporter(load(None, {}, {"collect.disable": "nonsense"}))
    known = str(error.value).partition("some of ")[2].partition(", found")[0]

    assert set(known.split(", ")) - set(disabled.split(",")) == {"devices", "faults"}
