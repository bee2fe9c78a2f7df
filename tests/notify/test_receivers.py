"""The receivers that Alertmanager knows by itself: our configurations and texts, sent by a real one to our servers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import yaml
from tests.helpers import free_port, wait_until
from tests.notify.test_alertmanager import ALERTMANAGER, answers, post, process
from tests.servers import PostServer

DEPLOY = Path(__file__).parents[2] / "deploy"
#: Read from a file by newer releases only.
INLINE = {
    "api_url_file": ("api_url", "{url}/slack"),
    "webhook_url_file": ("webhook_url", "{url}/discord"),
    "bot_token_file": ("bot_token", "123:token"),
}
#: What is a secret in these receivers.
SECRETS = {"api_url", "webhook_url", "bot_token"}


class Inbox(PostServer):
    """Keeps what is posted, by path."""

    def __init__(self):
        super().__init__()
        self.received = {}

    def answer(self, path, headers, body):
        """Keep it, and say yes as Telegram does, which the others take as well."""
        form = headers["Content-Type"].startswith("application/x-www-form-urlencoded")
        text = body.decode()
        self.received[path] = {k: v[0] for k, v in parse_qs(text).items()} if form else json.loads(text)
        return 200, {"ok": True, "result": {"message_id": 1, "date": 1, "chat": {"id": 1}}}


def receiver(name, url):
    """Return one of our receivers for an old Alertmanager and a server of ours."""
    (found,) = yaml.safe_load((DEPLOY / f"alertmanager/receivers/{name}.yml").read_text())
    for configs in (value for key, value in found.items() if key.endswith("_configs")):
        for config in configs:
            for old, (new, value) in INLINE.items():
                if old in config:
                    del config[old]
                    config[new] = value.format(url=url)
            if name == "telegram":
                config["api_url"] = url
    return found


@pytest.mark.skipif(ALERTMANAGER is None, reason="alertmanager is not installed")
@pytest.mark.parametrize("language", ["", "_zh"])
def test_slack_telegram_and_discord_get_all_that_a_message_says(language, tmp_path):
    """How grave, what, where, since when, the evidence, what to do, the runbook, and how to silence it."""
    with Inbox() as inbox:
        config = {
            "templates": [f"{DEPLOY}/alertmanager/templates/*.tmpl"],
            "route": {"receiver": "team", "group_wait": "0s"},
            "receivers": [{"name": "team"}],
        }
        for name in ("slack", "telegram", "discord"):
            config["receivers"][0] |= receiver(name, inbox.url)
        text = (
            yaml.safe_dump(config)
            .replace('subject" .', f'subject{language}" .')
            .replace('chat" .', f'chat{language}" .')
        )
        (tmp_path / "alertmanager.yml").write_text(text)
        port = free_port()
        with process(
            ALERTMANAGER,
            f"--config.file={tmp_path}/alertmanager.yml",
            f"--storage.path={tmp_path}/alertmanager",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ):
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(f"{address}/-/ready"))
            post(address, ended=False)
            wait_until(lambda: len(inbox.received) == 3)

    said = {
        "slack": inbox.received["/slack"]["attachments"][0],
        "telegram": inbox.received["/bot123:token/sendMessage"],
        "discord": inbox.received["/discord"]["embeds"][0],
    }
    texts = ("自第 1200 步起", "回退到第 1000 步。") if language else ("since step 1200", "Go back to step 1000.")
    for name, message in said.items():
        whole = json.dumps(message, ensure_ascii=False)
        for part in (
            "critical",
            "llm-7b",
            "损失为 NaN" if language else "Loss is NaN",
            *texts,
            "/#/silences/new?filter=",
        ):
            assert part in whole, (name, part)
    assert said["slack"]["color"] == "danger"
    assert not said["telegram"].get("parse_mode")


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")
def test_a_site_adds_its_dashboards_to_each_message(tmp_path):
    """What `your-site.tmpl` defines wins over the empty one, without a change of the generated file."""
    folder = tmp_path / "templates"
    shutil.copytree(DEPLOY / "alertmanager/templates", folder)
    site = folder / "your-site.tmpl"
    text = site.read_text()
    site.write_text(text[text.index('{{ define "') : text.index("*/ -}}")])
    data = {
        "status": "firing", "receiver": "a", "externalURL": "http://am", "groupLabels": {}, "commonAnnotations": {},
        "commonLabels": {"alertname": "X", "run": "a b+c"},
        "alerts": [
            {"status": "firing", "labels": {"alertname": "X", "run": "a b+c"}, "annotations": {},
             "startsAt": "2026-11-30T00:00:00Z", "endsAt": "0001-01-01T00:00:00Z"}
        ],
    }  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(data))

    done = subprocess.run(
        ["amtool", "template", "render", "--template.glob", f"{folder}/*.tmpl",
         "--template.data", f"{tmp_path}/data.json", "--template.text", '{{ template "trainvitals.chat" . }}'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert "\nDashboard: https://grafana.example.org/d/trainvitals-run?var-run=a%20b%2Bc\n" in done.stdout
    assert "http://am/#/silences/new?filter=%7Balertname%3D%22X%22%2Crun%3D%22a%20b%2Bc%22%7D" in done.stdout


def test_every_receiver_is_whole():
    """Each file is one receiver called team with known keys, its secrets in files, and tells of the end as well."""
    names = set()
    for path in sorted((DEPLOY / "alertmanager/receivers").glob("*.yml")):
        (found,) = yaml.safe_load(path.read_text())
        assert found.pop("name") == "team"
        ((kind, configs),) = found.items()
        names.add(kind)
        assert all(config["send_resolved"] for config in configs)
        secrets = [key for config in configs for key in config if key.removesuffix("_file") in SECRETS]
        assert all(key.endswith("_file") for key in secrets)
        assert secrets or kind == "webhook_configs"
    assert names == {"slack_configs", "telegram_configs", "discord_configs", "msteamsv2_configs", "webhook_configs"}
