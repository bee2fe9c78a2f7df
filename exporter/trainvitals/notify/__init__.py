"""Messages to chat robots that Alertmanager does not know: DingTalk, Feishu and Lark, WeCom, and Apprise for the rest.

The way of a message: :mod:`app` takes what Alertmanager's webhook sends, :mod:`group` checks it, :mod:`message` makes
texts of it, :mod:`courier` hands them to the targets of a receiver, each of which is a :mod:`channels` with its size,
its rate and its errors, and :mod:`memory` knows what was accepted, so that what is sent again is not told twice.
"""
