"""The kinds of robots that messages go to: one file and one row each."""

from __future__ import annotations

from trainvitals.notify.channels.apprise import Apprise
from trainvitals.notify.channels.base import Channel
from trainvitals.notify.channels.dingtalk import DingTalk
from trainvitals.notify.channels.feishu import Feishu
from trainvitals.notify.channels.wecom import WeCom

CHANNELS: tuple[type[Channel], ...] = (DingTalk, Feishu, WeCom, Apprise)
