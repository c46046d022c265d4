"""Which calls need an administrator."""

from memotree.identity.permissions import PERMISSIONS, Permission, Place
from memotree.request.principal import Role


def calls(role: Role, place: Place) -> set[str]:
    return {call.partition(".")[2] for call, needed in PERMISSIONS.items() if needed == Permission(role, place)}


def test_an_administrator_of_the_server_is_needed_for_what_is_about_all_workspaces() -> None:
    assert calls(Role.ADMIN, Place.SERVER) == {
        *("PutPrincipal", "DeletePrincipal", "ListAuditRecords"),
        *("ChangeEmbedding", "ReloadSettings", "BackUp"),
    }


def test_an_administrator_of_a_workspace_is_needed_for_what_cannot_be_undone_or_guards_others() -> None:
    assert calls(Role.ADMIN, Place.ALL_BRANCHES) == {
        *("PreviewErasure", "Erase", "ListErasures", "GetErasure"),
        *("StartRebuild", "StartReindex", "RebuildWorkspace"),
        *("ProtectBranches", "UnprotectBranches", "SetPushPolicy"),
        *("UpdateWorkspace", "DeleteWorkspace"),
    }
