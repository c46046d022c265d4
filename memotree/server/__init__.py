"""The gRPC server: it translates calls into operations and errors into statuses, and has no logic of its own.

Import ``Server`` and ``serve`` from ``app``; the rest is internal to this folder.
"""
