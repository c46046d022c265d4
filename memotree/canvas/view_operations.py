"""The operations on views."""

from collections.abc import Iterable

from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.validation import check_text
from memotree_storage.postgres import views
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.postgres.views import ViewKey
from memotree_storage.store import Store

from memotree.canvas.view_rendering import render, shown
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.lookup import WorkspaceRevision
from memotree.request.messages import timestamp
from memotree.request.pages import PageTokens, page_size
from memotree.request.principal import principal
from memotree.v1 import view_service_pb2 as pb

DEFAULT_VIEW = "default"
_NAME_CHARS = 100


class ViewNotFoundError(NotFoundError):
    """The session or branch has no view of that name."""

    reason = "VIEW_NOT_FOUND"


def view_key(place: WorkspaceRevision, name: str) -> ViewKey:
    """The key of the caller's view with that name, in the session or branch of ``place``.

    Raises:
        InvalidTextError: The name is empty, too long or unprintable.
    """
    check_text("view_name", name, required=True, max_chars=_NAME_CHARS)
    return ViewKey(place.workspace.workspace_id, place.scope, name, principal().owner)


def _too_small(request: pb.RenderViewRequest, needed: int) -> str:
    """The warning that the titles of the roots, which are always shown, already exceed the budget."""
    helps = f"raise the budget to {needed} or more"
    if not request.archive:
        helps = f"name one archive to see only its nodes, or {helps}"
    return f"Not even the titles of the roots fit into {request.token_budget} tokens: {helps}."


class ViewOperations:
    """Renders, lists and deletes views."""

    def __init__(self, store: Store, pages: PageTokens, limits: ServiceLimits | None = None) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits or ServiceLimits()

    async def render_view(self, request: pb.RenderViewRequest) -> pb.RenderViewResponse:
        """Render a view as Markdown within a token budget."""
        if request.token_budget < 0:
            raise InvalidInputError.at("token_budget", "must be 0 (no limit) or more.")
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            key = view_key(place, request.view_name if request.HasField("view_name") else DEFAULT_VIEW)
            what = await shown(Snapshot(conn, place.state), key, request.archive)
            most = self._limits.node.content_bytes
            rendered = await render(Snapshot(conn, place.state), self._store, what, request.token_budget, limit=most)
        warnings = [*what.warnings, *_cut_short(rendered.cut, most)]
        if not rendered.fits:
            warnings.append(_too_small(request, rendered.usage.tokens_used))
        return pb.RenderViewResponse(
            markdown=rendered.markdown, usage=rendered.usage, collapsed_ids=rendered.collapsed, warnings=warnings
        )

    async def list_views(self, request: pb.ListViewsRequest) -> pb.ListViewsResponse:
        """List the views of a session or branch."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"name": str})
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            rows = await views.list_views(
                conn,
                place.workspace.workspace_id,
                place.scope,
                principal=principal().owner,
                after=cursor["name"] if cursor else "",
                limit=size + 1,
            )
        return pb.ListViewsResponse(
            views=[
                pb.View(
                    name=row.name,
                    scope=place.scope,
                    nodes_expanded=row.expanded,
                    update_time=timestamp(row.updated_at),
                )
                for row in rows[:size]
            ],
            next_page_token=self._pages.write(request, {"name": rows[size - 1].name} if len(rows) > size else None),
        )

    async def delete_view(self, request: pb.DeleteViewRequest) -> pb.DeleteViewResponse:
        """Delete a view."""
        async with self._store.database.transaction() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            key = view_key(place, request.view_name if request.HasField("view_name") else DEFAULT_VIEW)
            if not await views.delete_view(conn, key):
                raise ViewNotFoundError(
                    f"{place.resolved.kind} {place.scope} has no view {key.name!r}. List them with ListViews.",
                    "view",
                    key.name,
                )
        return pb.DeleteViewResponse()


def _cut_short(ids: Iterable[str], most: int) -> list[str]:
    return [
        f"The content of {entry_id} is made from its leaves and is cut short here: all such contents together have at "
        f"most {most} bytes. Expand the nodes below it."
        for entry_id in ids
    ]
