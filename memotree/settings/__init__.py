"""The server's settings, read from environment variables and a TOML file and checked before anything starts.

Only this room and the command line read the environment. A value given in code (by a flag of the command line)
overrides the environment, the environment overrides the file, the file overrides the default. ``fields`` has the
settings, ``of_tools`` those of single tools, ``loading`` reads them; import all from here.
"""

from memotree.settings.fields import LOCAL_EMBEDDING_MODELS, LogFormat, Settings
from memotree.settings.loading import (
    CONFIG_NAME,
    SECRETS,
    TABLES,
    Given,
    InvalidSettingsError,
    LoadedSettings,
    config_path,
    load_settings,
    read_settings,
)
from memotree.settings.of_tools import BuiltinTool, CustomTool, ToolLevel

__all__ = [
    "CONFIG_NAME",
    "LOCAL_EMBEDDING_MODELS",
    "SECRETS",
    "TABLES",
    "BuiltinTool",
    "CustomTool",
    "Given",
    "InvalidSettingsError",
    "LoadedSettings",
    "LogFormat",
    "Settings",
    "ToolLevel",
    "config_path",
    "load_settings",
    "read_settings",
]
