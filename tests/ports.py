"""Ports for servers that stop and listen on the same port again."""

import random
import socket
from typing import Final

_CHOICE: Final = range(20_000, 30_000)
"""Below the ports that systems give to connections and to whoever asks for any port, so nobody gets one by chance."""


def kept_ports(count: int) -> list[int]:
    """Return different ports of loopback that nobody listens on now, and that no other program is likely to get."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_CHOICE, len(_CHOICE)):
        if len(found) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    assert len(found) == count, "no port is free"
    return found
