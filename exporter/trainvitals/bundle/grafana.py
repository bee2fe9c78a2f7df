"""Grafana, where it is installed: its environment, its data source, and the dashboards of this bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from trainvitals.bundle.ports import LOOPBACK

#: Where packages put the files that Grafana's program needs beside itself.
_PACKAGED_HOME = Path("/usr/share/grafana")
#: The folder in Grafana that holds the dashboards of a language; the same as in deploy/grafana/provisioning.
FOLDERS = {"en": "Trainvitals", "zh": "Trainvitals 中文"}


def command(program: str) -> list[str]:
    """Return the command line: ``grafana server`` since Grafana 9.4, ``grafana-server`` before."""
    path = Path(program).resolve()
    home = next(
        (folder for folder in (path.parent.parent, _PACKAGED_HOME) if (folder / "conf/defaults.ini").exists()), None
    )
    server = ["server"] if path.name == "grafana" else []
    return [program, *server, *([f"--homepath={home}"] if home else [])]


def environment(folder: Path, port: int) -> dict[str, str]:
    """Return the settings, as Grafana reads them from its environment; everybody on loopback may look and edit."""
    settings = {
        "PATHS_DATA": folder / "data",
        "PATHS_LOGS": folder / "logs",
        "PATHS_PLUGINS": folder / "plugins",
        "PATHS_PROVISIONING": folder / "provisioning",
        "SERVER_HTTP_ADDR": LOOPBACK,
        "SERVER_HTTP_PORT": port,
        "AUTH_ANONYMOUS_ENABLED": "true",
        "AUTH_ANONYMOUS_ORG_ROLE": "Editor",
        "AUTH_DISABLE_LOGIN_FORM": "true",
        "DASHBOARDS_MIN_REFRESH_INTERVAL": "1s",
        # Nothing calls home.
        "ANALYTICS_REPORTING_ENABLED": "false",
        "ANALYTICS_CHECK_FOR_UPDATES": "false",
        "ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "NEWS_NEWS_FEED_ENABLED": "false",
        "PLUGINS_PREINSTALL_DISABLED": "true",
        "LOG_LEVEL": "warn",
    }
    return {f"GF_{name}": str(value) for name, value in settings.items()}


def dashboards() -> dict[str, str]:
    """Return the dashboards by file name below a folder for each language: the repository's, else rendered, else none.

    Rendering needs the extra "generate".
    """
    committed = Path(__file__).parents[3] / "dashboards"
    found = sorted(committed.glob("*/*.json"))
    if files := {f"{path.parent.name}/{path.name}": path.read_text(encoding="utf-8") for path in found}:
        return files
    try:
        from trainvitals.generate import dashboard  # noqa: PLC0415  its library is optional

        return dict(dashboard.dashboards())
    except ModuleNotFoundError:
        return {}


def provision(folder: Path, *, prometheus: str, interval: str, dashboards: Mapping[str, str]) -> None:
    """Write the data source (``prometheus`` is a URL) and the dashboards, JSON texts by language/file name."""
    source = {
        "name": "Prometheus",
        "type": "prometheus",
        "uid": "trainvitals-prometheus",
        "access": "proxy",
        "url": prometheus,
        "isDefault": True,
        "jsonData": {"timeInterval": interval, "httpMethod": "POST"},
    }
    languages = sorted({name.split("/")[0] for name in dashboards})
    providers = [
        {
            "name": f"trainvitals-{language}",
            "folder": FOLDERS.get(language, "Trainvitals"),
            "type": "file",
            "options": {"path": str(folder / "dashboards" / language)},
        }
        for language in languages
    ]
    # JSON is YAML.
    files = {
        "provisioning/datasources/trainvitals.yml": json.dumps({"apiVersion": 1, "datasources": [source]}),
        "provisioning/dashboards/trainvitals.yml": json.dumps({"apiVersion": 1, "providers": providers}),
        **{f"dashboards/{name}": text for name, text in dashboards.items()},
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # Grafana complains about folders that are missing.
    for name in ("plugins", "alerting"):
        (folder / "provisioning" / name).mkdir(parents=True, exist_ok=True)
