"""A change of keys or roles reads and replaces what belongs to one principal, however many others there are."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from integration import statements
from memotree_storage.errors import InvalidInputError, UnavailableError
from memotree_storage.model.access import ALL_WORKSPACES
from memotree_storage.postgres import access as tables
from memotree_storage.postgres.access import AccessRows, GrantRow
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store

from memotree.identity import operations as module
from memotree.identity.access import Access
from memotree.identity.api_keys import NewKey, digest, new_key
from memotree.identity.errors import KeyRefusedError, LastAdministratorError
from memotree.identity.operations import AccessOperations, TooManyGrantsError
from memotree.request.pages import PageTokens
from memotree.request.principal import ALL_BRANCHES, Role
from memotree.v1 import access_service_pb2 as pb

pytestmark = pytest.mark.requirement("SERVE-3")

MANY = 500


@pytest.fixture
async def access(store: Store) -> AsyncIterator[Access]:
    """Hundreds of principals, each with a key and a role."""
    async with store.database.transaction() as conn:
        await conn.execute("insert into work.principal (name) select 'p' || n from generate_series(1, %s) n", (MANY,))
        await conn.execute(
            "insert into work.api_key (key_id, principal, digest)"
            " select 'k' || n, 'p' || n, sha256(n::text::bytea) from generate_series(1, %s) n",
            (MANY,),
        )
        await conn.execute(
            "insert into work.access_grant (principal, workspace_id, branches, role)"
            " select 'p' || n, 'w' || n, '*', 'reader' from generate_series(1, %s) n",
            (MANY,),
        )
    found = Access(store.database)
    await found.open()
    yield found
    await found.close()


@pytest.fixture
def operations(access: Access, store: Store) -> AccessOperations:
    return AccessOperations(access, store.database, PageTokens())


def grant(
    operations: AccessOperations, name: str, role: pb.Role.ValueType, branches: str = ""
) -> Coroutine[Any, Any, Any]:
    """Give a role in all workspaces."""
    return operations.grant_role(
        pb.GrantRoleRequest(principal=name, workspace=ALL_WORKSPACES, branches=branches, role=role)
    )


def revoke(operations: AccessOperations, name: str, branches: str = "") -> Coroutine[Any, Any, Any]:
    return operations.revoke_role(pb.RevokeRoleRequest(principal=name, workspace=ALL_WORKSPACES, branches=branches))


async def put_key(made: NewKey, conn: Connection, **fields: Any) -> set[str]:
    """Give ``p1`` a key."""
    await tables.add_key(conn, made.key_id, "p1", digest(made.text), **fields)
    return {"p1"}


async def test_a_change_reads_the_rows_of_its_principal_and_leaves_the_others_as_they_are(
    access: Access, operations: AccessOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {each.name: each for each in access.all_principals()}
    assert len(before) == MANY
    rows: list[int] = []
    read = tables._read

    async def counted(conn: Connection, names: Any) -> AccessRows:
        found = await read(conn, names)
        rows.append(len(found.principals) + len(found.keys) + len(found.grants))
        return found

    monkeypatch.setattr(tables, "_read", counted)
    with statements.recorded() as sent:
        made = await operations.create_key(pb.CreateKeyRequest(principal="p7"))
        assert access.principal_of_key(made.key).name == "p7"
        await grant(operations, "p7", pb.ROLE_WRITER)
        await operations.delete_key(pb.DeleteKeyRequest(key_id=made.api_key.id))
        await operations.put_principal(pb.PutPrincipalRequest(name="p7", email="p7@example.org"))
        await revoke(operations, "p7")
        await operations.delete_principal(pb.DeletePrincipalRequest(name="p8"))
    assert rows == [4, 5, 4, 4, 3, 0]
    assert len(sent) < 40
    assert access.changes == 6
    after = {each.name: each for each in access.all_principals()}
    assert [name for name, each in before.items() if after.get(name) is not each] == ["p7", "p8"]
    assert (after["p7"].email, after["p7"].role("w7"), access.find("p8")) == ("p7@example.org", Role.READER, None)
    assert access.deletions == 1
    with pytest.raises(KeyRefusedError):
        access.principal_of_key(made.key)


async def test_what_is_in_memory_after_changes_is_what_is_read_anew(
    access: Access, operations: AccessOperations, store: Store
) -> None:
    for number in range(1, 6):
        await operations.create_key(pb.CreateKeyRequest(principal=f"p{number}"))
        await operations.put_principal(pb.PutPrincipalRequest(name=f"new{number}"))
        await grant(operations, f"new{number}", pb.ROLE_READER)
    await operations.delete_key(pb.DeleteKeyRequest(key_id="k3"))
    await operations.delete_principal(pb.DeletePrincipalRequest(name="p4"))
    anew = Access(store.database)
    await anew.open()
    assert access.all_principals() == anew.all_principals()
    assert {each.key_id for each in access.all_keys()} == {each.key_id for each in anew.all_keys()}
    for name in ("p1", "p3", "p4", "new2"):
        assert access.keys_of(name) == anew.keys_of(name)
    await anew.close()


async def test_the_last_administrator_is_found_without_a_look_at_all_keys(
    access: Access, operations: AccessOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("p1", "p2"):
        await grant(operations, name, pb.ROLE_ADMIN)
    looked: list[object] = []

    def counted(end: object) -> bool:
        looked.append(end)
        return False

    monkeypatch.setattr("memotree.identity.access_tables.is_over", counted)
    await operations.delete_key(pb.DeleteKeyRequest(key_id="k2"))
    await operations.create_key(pb.CreateKeyRequest(principal="p9"))
    for call in (
        operations.delete_key(pb.DeleteKeyRequest(key_id="k1")),
        operations.delete_principal(pb.DeletePrincipalRequest(name="p1")),
        revoke(operations, "p1"),
        grant(operations, "p1", pb.ROLE_READER),
    ):
        with pytest.raises(LastAdministratorError):
            await call
    assert access.find("p1") is not None
    assert [key.key_id for key in access.keys_of("p1")] == ["k1"]
    assert len(looked) < 20


async def test_a_key_that_has_ended_proves_and_administers_nothing(
    access: Access, operations: AccessOperations
) -> None:
    made = new_key()

    ended = datetime.now(UTC) - timedelta(seconds=1)
    await access.change(partial(put_key, made, expires_at=ended))
    with pytest.raises(KeyRefusedError):
        access.principal_of_key(made.text)
    await grant(operations, "p1", pb.ROLE_ADMIN)
    with pytest.raises(LastAdministratorError):
        await operations.delete_key(pb.DeleteKeyRequest(key_id="k1"))
    await operations.delete_key(pb.DeleteKeyRequest(key_id=made.key_id))


async def test_a_principal_has_a_bounded_number_of_roles_in_a_workspace(
    access: Access, operations: AccessOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_GRANTS", 3)

    for branches in ("a", "b", "c/*"):
        await grant(operations, "p1", pb.ROLE_WRITER, branches)
    with pytest.raises(TooManyGrantsError) as caught:
        await grant(operations, "p1", pb.ROLE_WRITER, "d")
    assert "p1 has 3 roles" in caught.value.message
    await grant(operations, "p1", pb.ROLE_REVIEWER, "b")  # in place of another
    await revoke(operations, "p1", "a")
    await grant(operations, "p1", pb.ROLE_WRITER, "d")
    found = access.find("p1")
    assert found is not None
    assert {each.branches for each in found.grants_in(ALL_WORKSPACES)} == {"b", "c/*", "d"}


async def test_a_role_to_read_is_not_limited_to_branches(access: Access, operations: AccessOperations) -> None:
    """Whoever may read a branch may read the workspace, so the limit would only seem to be one."""
    for branches in ("main", "agents/*"):
        with pytest.raises(InvalidInputError) as caught:
            await grant(operations, "p1", pb.ROLE_READER, branches)
        assert [each.field for each in caught.value.violations] == ["branches"]
        assert "reads the whole workspace" in caught.value.message
    for branches in ("", "*"):
        await grant(operations, "p1", pb.ROLE_READER, branches)
    found = access.find("p1")
    assert found is not None
    assert [each.branches for each in found.grants_in(ALL_WORKSPACES)] == [ALL_BRANCHES]


async def test_an_earlier_role_to_read_a_branch_goes_on_and_can_be_revoked(
    access: Access, operations: AccessOperations
) -> None:
    async def put(conn: Connection) -> set[str]:
        await tables.put_grant(conn, GrantRow("p1", ALL_WORKSPACES, "main", "reader"))
        return {"p1"}

    await access.change(put)
    assert access.acting("p1").reads("anything")
    await revoke(operations, "p1", "main")
    assert not access.acting("p1").reads("anything")


async def test_roles_in_a_deleted_workspace_and_of_a_deleted_principal_are_forgotten(
    access: Access, store: Store
) -> None:
    async with store.database.transaction() as conn:
        await conn.execute("delete from work.access_grant where workspace_id = 'w5'")
    access.forget_workspace("w5")
    assert access.acting("p5").grants == ()
    assert access.acting("p6").role("w6") is Role.READER
    assert access.changes == 1
    gone = access.acting("nobody")
    assert (gone.is_known, gone.owner, gone.grants) == (True, "nobody", ())


async def test_after_a_change_whose_end_is_not_known_everything_is_read_anew(
    access: Access, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [UnavailableError("The connection is gone."), None]  # of the change, and of the reading after it

    @asynccontextmanager
    async def transaction() -> AsyncIterator[Connection]:
        async with store.database.transaction() as conn:
            yield conn
        if (error := ends.pop(0)) is not None:  # the change was committed all the same
            raise error

    made = new_key()
    monkeypatch.setattr(access, "_database", SimpleNamespace(transaction=transaction))
    with pytest.raises(UnavailableError):
        await access.change(partial(put_key, made))
    await asyncio.gather(*access._running)
    assert access.principal_of_key(made.text).name == "p1"
