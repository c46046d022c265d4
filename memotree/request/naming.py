"""Which names workspaces, branches and tags may have."""

from memotree_storage.commit.refs import ConfusingNameError
from memotree_storage.errors import InvalidInputError
from memotree_storage.git.objects import is_hex_id
from memotree_storage.git.refs import InvalidRefNameError, check_ref_name
from memotree_storage.model.hidden_characters import hidden_character
from memotree_storage.model.node import is_id
from memotree_storage.model.validation import check_name
from memotree_storage.postgres.refs import BRANCHES, TAGS


def check_workspace_name(name: str, field: str = "name") -> None:
    """Check that a workspace name works as a folder name on every system and does not read like an id.

    Raises:
        InvalidNameError: It cannot be the name of a folder.
        ConfusingNameError: It has the form of an id.
    """
    check_name(field, name)
    if is_id(name):
        raise ConfusingNameError.at(
            field, f"{name!r} reads like the id of a workspace; choose a name that can mean only one thing."
        )


def check_branch_name(name: str, field: str = "name") -> None:
    """Check that Git accepts a branch name and that it does not read like another kind of revision.

    Raises:
        InvalidRefNameError: Git refuses it.
        ConfusingNameError: It looks like a session's or a commit's id, a whole ref name, or ``HEAD``. The beginning of
            a commit's id is allowed: git and MemoTree both prefer a branch or tag of that name.
    """
    _check(BRANCHES, name, field)


def check_tag_name(name: str, field: str = "name") -> None:
    """Check that Git accepts a tag name and that it does not read like another kind of revision.

    Raises:
        InvalidRefNameError: Git refuses it.
        ConfusingNameError: It looks like a session's or a commit's id, a whole ref name, or ``HEAD``. The beginning of
            a commit's id is allowed: git and MemoTree both prefer a branch or tag of that name.
    """
    _check(TAGS, name, field)


def _check(prefix: str, name: str, field: str) -> None:
    if not name:
        raise InvalidInputError.at(field, "is needed.")
    try:
        check_ref_name(prefix + name)
    except InvalidRefNameError as error:
        raise InvalidRefNameError.at(field, _about(name, error)) from error
    if hidden := hidden_character(name):
        raise ConfusingNameError.at(
            field, f"{name!r} has U+{ord(hidden):04X}, which cannot be seen; choose a name that looks like what it is."
        )
    if is_hex_id(name):
        what = "the id of a commit, and Git itself ignores refs with such names"
    elif is_id(name):
        what = "the id of a session"
    elif name.startswith(("refs/", "heads/", "tags/")):
        what = "a whole ref name"
    elif name in {"@", "HEAD"}:
        what = "the commit that a working copy is at"
    else:
        return
    raise ConfusingNameError.at(field, f"{name!r} reads like {what}; choose a name that can mean only one thing.")


def _about(name: str, error: InvalidRefNameError) -> str:
    """The rule that the name breaks, with the name as it was given."""
    described = error.violations[0].description if error.violations else error.message
    _, _, rule = described.partition("' ")
    return f"{name[:200]!r} {rule or described}."
