"""Robots that answer as DingTalk's, Feishu's and WeCom's do: signatures checked, sizes and rates limited."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from urllib.parse import parse_qs, urlsplit

from tests.servers import PostServer

#: So many tries a minute, and what the next one hears.
RATES = {
    "dingtalk": (20, (200, {"errcode": 130101, "errmsg": "send too fast, exceed 20 times per minute"})),
    "feishu": (100, (200, {"code": 11232, "msg": "frequency limited psm[lark.oapi]", "data": {}})),
    "wecom": (20, (200, {"errcode": 45009, "errmsg": "api freq out of limit"})),
}


class Robots(PostServer):
    """One server for all three; a message that was accepted is in ``taken`` with its kind, title and text.

    Before any check it gives ``answers``, one for each try, and to the robots in ``away`` theirs, as long as it stands
    there: (status, body), or None for a connection that is cut.
    """

    def __init__(self):
        super().__init__()
        self.taken = []
        #: Each try with its kind and its time.
        self.tried = []
        self.answers = []
        self.away = {}

    def answer(self, path, _headers, body):
        """Return status and body."""
        where = urlsplit(path)
        kind = where.path.strip("/").partition("/")[0]
        self.tried.append((kind, time.time()))
        if self.answers:
            return self.answers.pop(0)
        if kind in self.away:
            return self.away[kind]
        most, refusal = RATES[kind]
        if sum(other == kind and time.time() - moment < 60.0 for other, moment in self.tried) > most:
            return refusal
        return getattr(self, kind)(where, parse_qs(where.query), json.loads(body), len(body))

    def accept(self, kind, title, text):
        """Keep a message."""
        self.taken.append((kind, title, text))

    def dingtalk(self, _where, query, message, size):
        """Check as DingTalk does, with a secret of SECdingtalk."""
        if query.get("access_token") != ["ding-token"]:
            return 200, {"errcode": 300001, "errmsg": "token is not exist"}
        moment = query.get("timestamp", ["0"])[0]
        wanted = hmac.new(b"SECdingtalk", f"{moment}\nSECdingtalk".encode(), hashlib.sha256).digest()
        if query.get("sign") != [base64.b64encode(wanted).decode()] or abs(time.time() * 1000 - int(moment)) > 3.6e6:
            return 200, {"errcode": 310000, "errmsg": "sign not match, more: [https://ding-doc.dingtalk.com]"}
        if size > 20000:
            return 200, {"errcode": 460101, "errmsg": "message too long, exceed 20000 bytes"}
        assert message["msgtype"] == "markdown"
        self.accept("dingtalk", message["markdown"]["title"], message["markdown"]["text"])
        return 200, {"errcode": 0, "errmsg": "ok"}

    def feishu(self, where, _query, message, size):
        """Check as Feishu does, with a secret of feishu-secret."""
        if where.path != "/feishu/feishu-token":
            return 400, {"code": 19001, "msg": "param invalid: incoming webhook access token invalid", "data": {}}
        key = f"{message.get('timestamp')}\nfeishu-secret".encode()
        wanted = base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()
        if message.get("sign") != wanted or abs(time.time() - int(message["timestamp"])) > 3600:
            return 200, {"code": 19021, "msg": "sign match fail or timestamp is not within one hour", "data": {}}
        if size > 20480:
            return 200, {"code": 9499, "msg": "Bad Request", "data": {}}
        card = message["card"]
        self.accept("feishu", card["header"]["title"]["content"], card["elements"][0]["text"]["content"])
        return 200, {"StatusCode": 0, "StatusMessage": "success", "code": 0, "data": {}, "msg": "success"}

    def wecom(self, _where, query, message, _size):
        """Check as WeCom does."""
        if query.get("key") != ["wecom-key"]:
            return 200, {"errcode": 93000, "errmsg": "invalid webhook url, hint: [1], from ip: 127.0.0.1"}
        content = message["markdown"]["content"]
        if len(content.encode()) > 4096:
            return 200, {
                "errcode": 40058,
                "errmsg": "markdown.content exceed max length 4096. invalid Request Parameter",
            }
        self.accept("wecom", content.partition("\n")[0], content)
        return 200, {"errcode": 0, "errmsg": "ok"}


def settings(robots, folder, **options):
    """Return settings with a receiver for each robot, named by its kind, and write the secrets."""
    secrets = {
        "ding": "ding-token",
        "ding2": "SECdingtalk",
        "fei": "feishu-token",
        "fei2": "feishu-secret",
        "we": "wecom-key",
    }
    for name, text in secrets.items():
        (folder / name).write_text(text + "\n")
    kinds = {
        "dingtalk": {"token_file": str(folder / "ding"), "secret_file": str(folder / "ding2")},
        "feishu": {"token_file": str(folder / "fei"), "secret_file": str(folder / "fei2")},
        "wecom": {"key_file": str(folder / "we")},
    }
    targets = {kind: {"kind": kind, **values, "url": f"{robots.url}/{kind}"} for kind, values in kinds.items()}
    receivers = {kind: {"language": "both", "targets": [target]} for kind, target in targets.items()}
    receivers["all"] = {"language": "zh", "targets": list(targets.values())}
    return {"receivers": receivers, "timezone": "Asia/Shanghai", "state_folder": str(folder / "state"), **options}


def alert(number=1, *, status="firing", severity="critical", **annotations):
    """Return one alert as Alertmanager's webhook writes it."""
    return {
        "status": status,
        "labels": {
            "alertname": "TrainvitalsDeviceDown",
            "severity": severity,
            "category": "resource",
            "gauge": "health",
            "instance": f"node-{number:03d}",
            "job": "trainvitals",
        },
        "annotations": {
            "summary": "A device does not answer",
            "summary_zh": "设备无响应",
            "description": f"device 5 on node-{number:03d}: lost",
            "description_zh": f"node-{number:03d} 上的设备 5:丢失",
            "action": "Drain the node, then reset the device.",
            "action_zh": "先排空节点,再重置设备。",
            "runbook_url": "https://example.org/runbooks/TrainvitalsDeviceDown.md",
            **annotations,
        },
        "startsAt": "2026-11-30T04:05:06.123456789Z",
        "endsAt": "2026-11-30T04:25:06Z" if status == "resolved" else "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus:9090/graph",
        "fingerprint": f"{number:016x}",
    }


def body(*alerts, key='{}:{alertname="TrainvitalsDeviceDown"}', **fields):
    """Return a message of Alertmanager's webhook."""
    alerts = alerts or (alert(),)
    status = "firing" if any(one["status"] == "firing" for one in alerts) else "resolved"
    message = {
        "version": "4",
        "groupKey": key,
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "all",
        "groupLabels": {"alertname": "TrainvitalsDeviceDown"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "alerts": list(alerts),
        **fields,
    }
    return json.dumps(message).encode()
