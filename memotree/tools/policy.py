"""Which tools a server offers to anybody: an allow list, and a level. Roles come on top of that.

`docs/explanation/tool-policy.md` has what each level allows as a table.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from memotree_storage.model.tool_patterns import names_tool

from memotree.identity.errors import ToolNotPermittedError
from memotree.request.principal import Principal, principal
from memotree.settings import ToolLevel
from memotree.tools.declaration import Declaration
from memotree.tools.rate_limit import ToolRateLimit

_INSIDE: Final = frozenset({"workspace", "server"})
"""The resources that are the store's own."""


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """What a server offers.

    Attributes:
        level: ``strict``, ``normal`` or ``permissive``.
        allowed: Patterns of the names of tools; if there are any, all other tools are denied.
        disabled: The names of tools that are turned off.
        own: The names of MemoTree's own tools; what others say of themselves is not believed at the level strict.
    """

    level: ToolLevel = "permissive"
    allowed: tuple[str, ...] = ()
    disabled: Collection[str] = ()
    own: Collection[str] = ()

    def refusal(self, tool: Declaration) -> str:
        """Why a tool is not offered; empty if it is."""
        if tool.name in self.disabled:
            return f"the settings of the server turn it off (tools_disabled, or tools.builtin.{tool.name})"
        if self.allowed and not names_tool(self.allowed, tool.name):
            return "it is not among the tools that the server's setting tools_allowed names"
        if _ALLOWS[self.level](tool, self.own):
            return ""
        return f"it is not allowed at the server's tools_level {self.level}"


def _strict(tool: Declaration, own: Collection[str]) -> bool:
    reads = tool.read_only and all(each.action == "read" for each in tool.permissions)
    inside = not tool.open_world and all(each.resource in _INSIDE for each in tool.permissions)
    return tool.name in own and reads and inside


def _normal(tool: Declaration, _own: Collection[str]) -> bool:
    destroys = tool.destructive or any(each.action == "delete" for each in tool.permissions)
    resources = {each.resource for each in tool.permissions}
    calls_out = "host" in resources or (tool.open_world and "folder" not in resources)
    return not destroys and not calls_out


_ALLOWS: Final[dict[ToolLevel, Callable[[Declaration, Collection[str]], bool]]] = {
    "strict": _strict,
    "normal": _normal,
    "permissive": lambda _tool, _own: True,
}


class ToolAdmission:
    """Decides about each call of a tool: whether the server offers it, the roles of who calls permit it, and how often.

    Args:
        policy: What the server offers.
        rate: How often each principal may call.
    """

    def __init__(self, policy: ToolPolicy | None = None, rate: ToolRateLimit | None = None) -> None:
        self.policy = policy or ToolPolicy()
        self.rate = rate or ToolRateLimit()

    def permits(self, tool: Declaration) -> bool:
        """Whether who calls may call a tool; if not, the tool is not listed for it."""
        return not self._refusal(tool, principal())

    def check(self, tool: Declaration) -> None:
        """Refuse the call of a tool that who calls may not call.

        Raises:
            ToolNotPermittedError: It may not.
        """
        refusal = self._refusal(tool, principal())
        if refusal:
            raise ToolNotPermittedError(refusal)

    def count(self) -> None:
        """Count a call of who calls.

        Raises:
            ToolRateError: It comes too soon.
        """
        self.rate.count(principal())

    def _refusal(self, tool: Declaration, who: Principal) -> str:
        why = self.policy.refusal(tool)
        if why:
            return f"{tool.name} may not be called here: {why}. Ask who runs the server, or use another tool."
        return "" if who.may_call(tool.name) else ToolNotPermittedError.of_tool(who.name, tool.name).message
