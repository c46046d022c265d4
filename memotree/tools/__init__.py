"""Tools that are functions: declared by their signature, limited by an executor, run in worker processes if they block.

Import ``tool`` and ``Permission`` to declare one, as other packages do, and ``settings`` to read what the server says
to it. `memotree.gateways` shows these tools beside
those that call RPCs.
"""

from memotree.tools.declaration import Permission
from memotree.tools.function_tool import tool
from memotree.tools.own_settings import settings

__all__ = ["Permission", "settings", "tool"]
