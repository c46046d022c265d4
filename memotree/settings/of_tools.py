"""The tables of single tools: ``tools.builtin.NAME`` and ``tools.custom.NAME``."""

import json
from datetime import timedelta
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memotree.setting_types import Duration, Folders, ModelUrl, Texts

ToolLevel = Literal["strict", "normal", "permissive"]
"""Which tools a server offers to anybody."""

ToolSandbox = Literal["auto", "off", "required"]
"""Whether processes that run tools are kept apart from the machine."""


class BuiltinTool(BaseModel):
    """What is set for one tool that MemoTree brings along; what is ``None`` is as for all tools."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="Whether there is the tool.")
    timeout: Duration | None = Field(default=None, description="How long a call may take.")
    folders: Folders | None = Field(default=None, description="The folders whose files it may read.")
    hosts: Texts | None = Field(default=None, description="The hosts that it may reach.")
    url: ModelUrl | None = Field(default=None, description="The service that it asks.")

    @property
    def limits(self) -> tuple[str, ...]:
        """The names of what is set beside ``enabled``."""
        return tuple(name for name in type(self).model_fields if name != "enabled" and getattr(self, name) is not None)


class CustomTool(BaseModel):
    """What is set for one tool of another package; further keys are for the tool itself."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="allow")

    enabled: bool = Field(default=True, description="Whether there is the tool.")
    timeout: Duration | None = Field(default=None, description="How long a call may take.")

    @model_validator(mode="after")
    def _is_plain(self) -> "CustomTool":
        try:
            json.dumps(self.model_extra, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError("give texts, numbers, true or false, lists and tables; a date as a text") from None
        return self

    @property
    def seconds(self) -> float | None:
        """How long a call may take; ``None`` for the time that the tool says."""
        return None if self.timeout is None else self.timeout / timedelta(seconds=1)

    @property
    def own(self) -> dict[str, object]:
        """What the tool itself reads."""
        return dict(self.model_extra or {})
