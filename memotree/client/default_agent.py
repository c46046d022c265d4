"""Who a call is made for if the caller names nobody: the author of the commits of this program."""

import getpass
import os
from contextlib import suppress

from google.protobuf.message import Message

VARIABLE = "MEMOTREE_AGENT"
"""The environment variable that names the agent; the terminal reads it too."""


def default_agent() -> str:
    """The agent of ``MEMOTREE_AGENT``, else the login name; empty, so that the server says "agent", without both."""
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return given
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return ""


def name_agent(request: Message) -> None:
    """Fills in the default agent if ``request`` has a field for one and the caller left it empty."""
    if "agent" in request.DESCRIPTOR.fields_by_name and not getattr(request, "agent", ""):
        request.agent = default_agent()  # type: ignore[attr-defined] # the field exists, as checked above
