"""The one gateway to chat, embedding and reranking models, and the built-in ones that need no key and no network.

Import `gateway.Models` (one a server), `meter.Meter` (one a piece of work), the values of `answers`, and the errors
beside what raises them.
"""
