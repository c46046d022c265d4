"""Whether whoever calls may call a function.

What a function does in a workspace goes through the operations of the contract, which check it. What it does elsewhere
(folders, hosts, the server) is of no workspace, and needs a role in all of them.
"""

from typing import Final

from memotree.identity.errors import ToolNotPermittedError
from memotree.request.principal import Role, principal
from memotree.tools.declaration import Declaration

_CHECKED_BY_OPERATIONS: Final = "workspace"


def check_permitted(tool: Declaration, *, of_plugin: bool = False) -> tuple[str, ...] | None:
    """Check that whoever calls may call a function.

    Args:
        tool: The function.
        of_plugin: Whether it is of another package, which may do what it does not say.

    Returns:
        The folders or hosts to which its roles limit the function; ``None`` if they do not.

    Raises:
        ToolNotPermittedError: It may not.
    """
    actions = {each.action for each in tool.permissions if each.resource != _CHECKED_BY_OPERATIONS}
    if not actions and not of_plugin:
        return None
    needed = Role.READER if tool.read_only and actions <= {"read"} else Role.WRITER
    who = principal()
    if who.is_known and who.calling(tool.name).server_role < needed:
        raise ToolNotPermittedError(
            f"{tool.name} needs the role {needed.name.lower()} in all workspaces; ask an administrator of the server "
            "for it."
        )
    return who.reach(tool.name, needed) if who.is_known else None
