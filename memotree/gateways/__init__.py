"""Gateways for agents and plain programs: MCP (streamable HTTP and stdio) and HTTP, over the operations of the server.

Each tool is one entry of the table in ``tool_definitions``; what it takes and says of itself comes from the wire
contract. Import ``HttpServer`` from ``http_server`` and ``serve_stdio`` from ``stdio``; the rest serves them.
"""
