"""Gateways for agents and plain programs: MCP (streamable HTTP and stdio) and HTTP, over the operations of the server.

Each tool is one line of the table in ``tools``; what it takes and says of itself comes from the wire contract. Import
``WebFace`` from ``web`` and ``serve_stdio`` from ``stdio``; the rest serves them.
"""
