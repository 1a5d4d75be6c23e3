"""Deliver messages to targets: a file, a webhook, an address of mail, a chat of Telegram.

A message is on disk before the first try. It is sent at least once: after a crash between a target's acknowledgement
and our record of it, it is sent again, with the same key, by which a target knows it.
"""
