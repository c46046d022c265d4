"""The programs that run agents, and where each keeps the MCP servers that it starts.

The places and formats are those that the programs document publicly (looked up in November 2026).
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final


class HostChoice(StrEnum):
    """The programs whose configuration can be written."""

    CLAUDE_CODE = "claude-code"
    CLAUDE_DESKTOP = "claude-desktop"
    CODEX = "codex"
    CURSOR = "cursor"
    GEMINI = "gemini"
    VSCODE = "vscode"
    WINDSURF = "windsurf"


@dataclass(frozen=True, slots=True)
class Host:
    """One program.

    Attributes:
        name: For people.
        user_file: Its configuration for all projects of this user.
        project_file: Its configuration in the folder of a project; empty if it has none.
        table: The key that holds the servers by name.
        constants: What an entry has beside command and arguments.
        then: What a person has to do before the program sees the change.
    """

    name: str
    user_file: Path
    project_file: str
    table: str = "mcpServers"
    constants: Mapping[str, Any] | None = None
    then: str = "Start it again."

    def entry(self, command: str, arguments: list[str]) -> dict[str, Any]:
        """The entry of a server that is started by a command."""
        return {**(self.constants or {}), "command": command, "args": arguments}


def _config_home() -> Path:
    """Where desktop programs of this system keep their settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming"))
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return given if given.is_absolute() else Path.home() / ".config"


def host(choice: HostChoice) -> Host:
    """The program that a choice names."""
    home, config = Path.home(), _config_home()
    stdio: Final = {"type": "stdio"}
    return {
        HostChoice.CLAUDE_CODE: Host("Claude Code", home / ".claude.json", ".mcp.json", constants=stdio),
        HostChoice.CLAUDE_DESKTOP: Host("Claude Desktop", config / "Claude" / "claude_desktop_config.json", ""),
        HostChoice.CODEX: Host("Codex", home / ".codex" / "config.toml", ".codex/config.toml", table="mcp_servers"),
        HostChoice.CURSOR: Host("Cursor", home / ".cursor" / "mcp.json", ".cursor/mcp.json"),
        HostChoice.GEMINI: Host("Gemini CLI", home / ".gemini" / "settings.json", ".gemini/settings.json"),
        HostChoice.VSCODE: Host(
            "VS Code", config / "Code" / "User" / "mcp.json", ".vscode/mcp.json", table="servers", constants=stdio
        ),
        HostChoice.WINDSURF: Host("Windsurf", home / ".codeium" / "windsurf" / "mcp_config.json", ""),
    }[choice]
