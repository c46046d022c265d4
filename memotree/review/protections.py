"""Protects branches, so that they change only by the merge of an approved proposal."""

from collections.abc import Callable, Sequence
from functools import partial

from memotree_storage.commit.merge_commit import Identity
from memotree_storage.commit.transaction import repository_of, workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import FailedPreconditionError, InvalidInputError, NotFoundError
from memotree_storage.git.protections import read_protections, write_protections
from memotree_storage.model.protection import MOST_APPROVALS, MOST_PROTECTIONS, Protection
from memotree_storage.postgres import registry
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.review.messages import check_pattern, identity_of, protection_message
from memotree.v1 import review_service_pb2 as pb


class ProtectionNotFoundError(NotFoundError):
    """No protection has this pattern."""

    reason = "PROTECTION_NOT_FOUND"

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"No protection has the pattern {pattern!r}. List them with ListProtections.", "protection", pattern
        )


class TooManyProtectionsError(FailedPreconditionError):
    """The workspace has as many protections as it can have."""

    reason = "TOO_MANY_PROTECTIONS"


class Protections:
    """Protects branches and lists what is protected."""

    def __init__(self, store: Store, limits: ServiceLimits) -> None:
        self._store = store
        self._limits = limits

    async def protect(self, request: pb.ProtectBranchesRequest) -> pb.ProtectBranchesResponse:
        """Protect branches, or change their protection."""
        pattern = check_pattern(lookup.needed("pattern", request.pattern), "pattern")
        if not 0 <= request.required_approvals <= MOST_APPROVALS:
            raise InvalidInputError.at("required_approvals", f"must be from 1 to {MOST_APPROVALS}.")
        who = identity_of(self._limits, request)
        made = Protection(
            pattern, request.required_approvals or 1, request.checks_required, who.author.name, who.author.when
        )

        def change(there: Sequence[Protection]) -> list[Protection]:
            others = [one for one in there if one.pattern != pattern]
            if len(others) >= MOST_PROTECTIONS:
                raise TooManyProtectionsError(
                    f"The workspace has {len(others)} protections, which is the limit. Use patterns with * at the end."
                )
            return [*others, made]

        await self._change(request.workspace, change, f"Protect {pattern}", who)
        return pb.ProtectBranchesResponse(protection=protection_message(made))

    async def unprotect(self, request: pb.UnprotectBranchesRequest) -> pb.UnprotectBranchesResponse:
        """End a protection."""
        pattern = lookup.needed("pattern", request.pattern)

        def change(there: Sequence[Protection]) -> list[Protection]:
            others = [one for one in there if one.pattern != pattern]
            if len(others) == len(there):
                raise ProtectionNotFoundError(pattern)
            return others

        who = identity_of(self._limits, request)
        await self._change(request.workspace, change, f"Unprotect {pattern}", who)
        return pb.UnprotectBranchesResponse()

    async def list(self, request: pb.ListProtectionsRequest) -> pb.ListProtectionsResponse:
        """The protections of a workspace, by pattern."""
        async with self._store.database.connection() as conn:
            found = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
        repository = await repository_of(self._store, found.workspace_id)
        there = await in_store_thread(read_protections, repository)
        return pb.ListProtectionsResponse(protections=[protection_message(one) for one in there])

    async def _change(
        self,
        workspace: str,
        change: Callable[[Sequence[Protection]], Sequence[Protection]],
        message: str,
        who: Identity,
    ) -> None:
        async with self._store.database.connection() as conn:
            found = await registry.find_workspace(conn, lookup.needed("workspace", workspace))

        async def run(commit_point: CommitPoint) -> None:
            async with workspace_transaction(self._store, found.workspace_id, commit_point) as held:
                there = await in_store_thread(read_protections, held.repository)
                changed = change(there)
                write = partial(write_protections, held.repository, changed, message, who.author, who.committer)
                await held.change_git(write)

        await finish_past_commit_point(run)
