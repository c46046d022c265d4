"""The policy for pushes in a repository."""

from typing import Final

from memotree_storage.git.records import NewRecord, read_record, write_record
from memotree_storage.model.push_policy import PUSHES_REF, PushPolicy, decode_push_policy, encode_push_policy
from memotree_storage.ports import CommitReader, CommitStore, Signature

POLICY_FILE: Final = "policy.json"
_ABOUT: Final = """\
# Pushes

`policy.json` tells whether a push may bring faults into a branch, which branches it may rewind, and who said so.
"""


def read_push_policy(repository: CommitReader) -> PushPolicy:
    """The policy of a workspace; one that takes faults in and lets nothing be rewound if nobody has set any.

    Raises:
        PushPolicyDamagedError: It cannot be read.
    """
    data = read_record(repository, PUSHES_REF, POLICY_FILE)
    return PushPolicy() if data is None else decode_push_policy(data)


def write_push_policy(repository: CommitStore, policy: PushPolicy, author: Signature, committer: Signature) -> None:
    """Replace the policy of a workspace.

    Raises:
        RecordRacedError: Another program changed it at the same moment.
    """
    said = "Refuse pushes with faults" if policy.strict else "Take in pushes with faults"
    rewindable = "".join(f"- {pattern}\n" for pattern in policy.rewindable)
    rewinds = f"They may rewind:\n{rewindable}" if rewindable else "They may rewind no branch.\n"
    new = NewRecord({POLICY_FILE: encode_push_policy(policy)}, f"{said}\n\n{rewinds}", author, committer)
    write_record(repository, PUSHES_REF, repository.ref(PUSHES_REF), new, _ABOUT)
