"""Erasures as messages."""

from datetime import datetime

from memotree_storage.erasure.finding import Preview
from memotree_storage.git.erasures import ErasureStub
from memotree_storage.model.erasure import ErasureTarget

from memotree.request.messages import timestamp
from memotree.v1 import erase_service_pb2 as pb
from memotree.v1 import job_service_pb2


def target_of(message: pb.ErasureTarget) -> ErasureTarget:
    """Returns what a request names."""
    return ErasureTarget(message.node_id, tuple(sorted(set(message.fields))), message.archive_id, message.text)


def preview_message(found: Preview) -> pb.ErasurePreview:
    """Returns a preview as a message."""
    return pb.ErasurePreview(
        commits=found.commits,
        messages=found.messages,
        nodes=found.entries,
        versions=found.versions,
        files=found.files,
        branches=found.branches,
        tags=found.tags,
        signatures=found.signatures,
        sessions=found.sessions,
        staged_changes=found.staged,
        requests=found.requests,
        jobs=found.jobs,
        unfinished_job_ids=found.unfinished_jobs,
        discarded_files=found.discarded,
        phrase=found.phrase,
    )


def erasure_message(stub: ErasureStub) -> job_service_pb2.Erasure:
    """Returns what stays of an erasure as a message."""
    return job_service_pb2.Erasure(
        id=stub.erasure_id,
        kind=stub.kind,
        by=stub.by,
        reason=stub.why,
        erase_time=timestamp(datetime.fromisoformat(stub.erased_at)),
        node_ids=stub.node_ids,
        fields=stub.fields,
        salt=stub.salt,
        sha256=stub.sha256,
        commits=stub.commits,
        files=stub.files,
        tags=stub.tags,
        signatures=stub.signatures,
    )
