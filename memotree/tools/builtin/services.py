"""The services whose methods and functions are the tools that MemoTree brings along."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree.tools.builtin.calculator import calculator
from memotree.tools.builtin.date_time import Clock
from memotree.tools.builtin.documents import Documents
from memotree.tools.builtin.files import Files
from memotree.tools.builtin.hosts import AllowedHosts
from memotree.tools.builtin.network import Network
from memotree.tools.builtin.web_search import SearchEngine, SearxngEngine, WebSearch
from memotree.tools.container import Container
from memotree.tools.function_tool import FunctionTool

PLANNER: Final = (
    "create_project",
    "update_project",
    "delete_project",
    "get_project",
    "create_goal",
    "link_goal_to_project",
    "create_task",
    "complete_task",
    "write_review",
    "analyze_patterns",
)
"""The tools of `memotree.planner`, which a server adds to those of the services below."""

NEEDED_SETTING: Final[Mapping[str, str]] = {
    "calculator": "tools_enabled",
    "date_time": "tools_enabled",
    "document_count": "tools_enabled",
    "list_documents": "tools_enabled",
    "query_metadata": "tools_enabled",
    "document_info": "tools_enabled",
    "delete_document": "tools_enabled",
    "read_file": "tools_folders",
    "list_folder": "tools_folders",
    "http_request": "tools_hosts",
    "check_host": "tools_hosts",
    "search_web": "tools_search_url",
    **dict.fromkeys(PLANNER, "tools_enabled"),
}
"""All of the tools, in the order in which they are listed, with the setting without which a server has them not."""

NAMES: Final = tuple(NEEDED_SETTING)


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What these tools may reach.

    Attributes:
        folders: Folders whose files may be read, absolute.
        excluded: Files and folders that may not, wherever they are.
        hosts: Hosts that may be reached; see `AllowedHosts`.
        search_url: The search engine of the web; there is none if empty.
    """

    folders: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    search_url: str = ""


def builtin_tools(options: ToolOptions | None = None) -> Sequence[FunctionTool]:
    """The tools of a server with these options.

    Raises:
        UrlError: A host of the options is none.
    """
    return builtin_services(options or ToolOptions()).tools()


def builtin_services(options: ToolOptions) -> Container:
    """The services of a server with these options, with their tools.

    Raises:
        UrlError: A host of the options is none.
    """
    container = Container()
    container.add(calculator)
    container.register(Clock)
    container.register(Documents)
    if options.folders:
        container.provide(Files(options.folders, options.excluded))
    if options.hosts:
        container.provide(AllowedHosts(options.hosts))
        container.register(Network)
    if options.search_url:
        container.provide(SearxngEngine(options.search_url), SearchEngine)
        container.register(WebSearch)
    return container
