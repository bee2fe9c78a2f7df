"""The command ``trainvitals notify``: messages of Alertmanager for chat robots."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from trainvitals.config import ConfigError
from trainvitals.folders import state_folder
from trainvitals.notify.app import make_app
from trainvitals.notify.bucket import Bucket
from trainvitals.notify.channels import secret
from trainvitals.notify.channels.base import Post
from trainvitals.notify.courier import Courier, Target
from trainvitals.notify.group import Alert, Group
from trainvitals.notify.memory import Memory
from trainvitals.notify.message import Style
from trainvitals.notify.post import HttpPost
from trainvitals.notify.settings import Settings, load, make
from trainvitals.serve.reload import WebConfigFile
from trainvitals.serve.server import Server

log = logging.getLogger(__name__)

LISTEN = "127.0.0.1:20911"
#: Exit statuses: a target that did not take the sample, and settings that cannot work.
NOT_SENT, WRONG = 1, 2


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    described = argparse.ArgumentParser(
        prog="trainvitals notify",
        description="Bring Alertmanager's messages to DingTalk, Feishu, Lark, WeCom, and by Apprise to many others.",
    )
    described.add_argument("--config.file", dest="config", required=True, metavar="FILE", help="receivers, in YAML")
    described.add_argument(
        "--web.listen-address", dest="listen", default=LISTEN, metavar="HOST:PORT", help="[default: %(default)s]"
    )
    described.add_argument(
        "--web.config.file", dest="web", metavar="FILE", help="TLS and users, in the exporter-toolkit's format"
    )
    described.add_argument(
        "--test", action="store_true", help="send a sample to every target, say what became of it, and end"
    )
    described.add_argument("--check", action="store_true", help="check the settings and the secrets' files, and end")
    return described


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level="INFO", stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # It logs each address that it posts to, and an address holds a secret.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = load(options.config)
        if options.check:
            return _check(settings)
        if options.test:
            return asyncio.run(_test(settings))
        return _serve(settings, options.listen, options.web)
    except ConfigError as error:
        print(f"trainvitals notify: {error}", file=sys.stderr)
        return WRONG


def build(settings: Settings, memory: Memory, post: Post) -> Courier:
    """Return a courier for the receivers of the settings.  Raises ConfigError."""
    zone = ZoneInfo(settings.timezone) if settings.timezone else None
    targets: dict[str, Sequence[Target]] = {}
    for name, receiver in settings.receivers.items():
        found = []
        for number, target in enumerate(receiver.targets):
            channel = make(target)
            same = sum(other["kind"] == channel.kind for other in receiver.targets)
            label = f"{name}/{channel.kind}" + (f"-{number}" if same > 1 else "")
            found.append(Target(label, channel, Bucket(channel.per_minute, time.monotonic)))
        targets[name] = tuple(found)
    styles = {
        name: Style(receiver.language, settings.grafana_url, zone) for name, receiver in settings.receivers.items()
    }
    return Courier(targets, styles, memory, post, longest_wait=settings.longest_wait, timeout=settings.timeout)


def _serve(settings: Settings, listen: str, web: str | None) -> int:
    folder = state_folder(settings.state_folder, os.environ)
    try:
        memory = Memory(os.path.join(folder, "notify.db"), window=settings.duplicates, clock=time.time)
    except OSError as error:
        raise ConfigError(f"state_folder: {error}") from None
    courier = build(settings, memory, HttpPost(settings.timeout))
    server = Server(make_app(courier), listen_address=listen, web_config=None if web is None else WebConfigFile(web))
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    log.info("listening on %s", server.start())
    try:
        stopping.wait()
    finally:
        server.stop()
        memory.close()
    return 0


def _check(settings: Settings) -> int:
    wrong = 0
    for name, receiver in settings.receivers.items():
        for target in receiver.targets:
            for key, path in target.items():
                if key.endswith("_file"):
                    try:
                        secret.read(path)
                    except secret.SecretError as error:
                        wrong += 1
                        print(f"{name}: {target['kind']}: {key}: {error}")
    if not wrong:
        print(f"{len(settings.receivers)} receivers: good")
    return WRONG if wrong else 0


async def _test(settings: Settings) -> int:
    post = HttpPost(settings.timeout)
    courier = build(settings, Memory("", window=0.0, clock=time.time), post)
    failed = 0
    try:
        for name, targets in courier.targets.items():
            for target in targets:
                alone = Courier(
                    {name: [target]},
                    {name: courier.styles[name]},
                    courier.memory,
                    post,
                    longest_wait=settings.longest_wait,
                    timeout=settings.timeout,
                )
                outcome = await alone.deliver(name, sample(datetime.now(timezone.utc)))
                failed += bool(outcome.kind)
                print(outcome.text if outcome.kind else f"{target.name}: sent")
    finally:
        await post.close()
    return NOT_SENT if failed else 0


def sample(now: datetime) -> Group:
    """Return a message that says that it is none."""
    alert = Alert(
        status="firing",
        labels={"alertname": "TrainvitalsTest", "severity": "info", "run": "example"},
        annotations={
            "summary": "This is a test of Trainvitals' messages",
            "summary_zh": "这是 Trainvitals 的测试消息",
            "description": "rank 3 on node-017: a sentence that says where and since when",
            "description_zh": "node-017 上的 rank 3：这里会写明位置与起始步数",
            "action": "Nothing: somebody ran `trainvitals notify --test`.",
            "action_zh": "无需处理：有人运行了 `trainvitals notify --test`。",
        },
        startsAt=now - timedelta(minutes=3),
    )
    return Group(version="4", groupKey=f"test {now.timestamp()}", status="firing", alerts=(alert,))
