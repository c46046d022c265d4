"""Sets what pushes to a workspace may do."""

from functools import partial

from memotree_storage.commit.transaction import repository_of, workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.git.push_policies import read_push_policy, write_push_policy
from memotree_storage.model.push_policy import MOST_PATTERNS, PushPolicy
from memotree_storage.postgres import registry
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.messages import timestamp
from memotree.review.messages import check_pattern, identity_of
from memotree.v1 import review_service_pb2 as pb


class PushPolicies:
    """Sets and reads the policy for pushes."""

    def __init__(self, store: Store, limits: ServiceLimits) -> None:
        self._store = store
        self._limits = limits

    async def set(self, request: pb.SetPushPolicyRequest) -> pb.SetPushPolicyResponse:
        """Replace the policy of a workspace."""
        if len(request.rewindable) > MOST_PATTERNS:
            raise InvalidInputError.at("rewindable", f"takes at most {MOST_PATTERNS} patterns; use * at their end.")
        patterns = {check_pattern(one, f"rewindable[{at}]") for at, one in enumerate(request.rewindable)}
        who = identity_of(self._limits, request)
        policy = PushPolicy(request.strict, tuple(sorted(patterns)), who.author.name, who.author.when)
        workspace_id = await self._workspace(request.workspace)

        async def run(commit_point: CommitPoint) -> None:
            async with workspace_transaction(self._store, workspace_id, commit_point) as held:
                await held.change_git(partial(write_push_policy, held.repository, policy, who.author, who.committer))

        await finish_past_commit_point(run)
        return pb.SetPushPolicyResponse(policy=_message(policy))

    async def get(self, request: pb.GetPushPolicyRequest) -> pb.GetPushPolicyResponse:
        """The policy of a workspace."""
        repository = await repository_of(self._store, await self._workspace(request.workspace))
        return pb.GetPushPolicyResponse(policy=_message(await in_store_thread(read_push_policy, repository)))

    async def _workspace(self, name: str) -> str:
        async with self._store.database.connection() as conn:
            return (await registry.find_workspace(conn, lookup.needed("workspace", name))).workspace_id


def _message(policy: PushPolicy) -> pb.PushPolicy:
    return pb.PushPolicy(
        strict=policy.strict,
        rewindable=policy.rewindable,
        set_by=policy.by,
        set_time=None if policy.at is None else timestamp(policy.at),
    )
