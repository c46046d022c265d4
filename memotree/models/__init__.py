"""The gateway to chat, embedding and reranking models, and built-in models that need no key and no network.

Import `gateway.Models` (one per server), `meter.Meter` (one per piece of work), the values of `chat_answers`, and the
errors from the modules that raise them.
"""
