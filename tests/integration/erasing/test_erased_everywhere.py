"""After an erasure the text is in no file below the data folder, and everything else is as it was."""

import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from crash.service import Service, running
from integration.leftovers import files_with
from memotree_storage.model.node import new_id

from memotree.client import (
    AsyncClient,
    Author,
    Difference,
    FailedPreconditionError,
    Ingestion,
    Job,
    JobState,
    NotFoundError,
)
from memotree.client.workspace import AsyncWorkspace

pytestmark = pytest.mark.requirement("GIT-10")


@pytest.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """A server that answers."""
    folder = tmp_path_factory.mktemp("erasing")
    async with running(folder / "data", folder / "server.log") as found:
        yield found


@pytest.fixture(scope="module")
async def secrets(service: Service) -> AsyncIterator[list[str]]:
    """The texts that the tests erase; none is in any file after the server has stopped, either."""
    used: list[str] = []
    yield used
    assert await service.stop() == 0
    assert files_with(service.data, b"Tulpenzwiebel-77") == []


@pytest.fixture
def secret(secrets: list[str]) -> str:
    """What must go in a test: it has a letter that JSON and some programs write otherwise."""
    secrets.append(f"Tulpenzwiebel-{7731 + len(secrets)}-\u00fcber")
    return secrets[-1]


@pytest.fixture
async def client(service: Service) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.address) as found:
        yield found


@pytest.fixture
async def garden(client: AsyncClient) -> AsyncWorkspace:
    """A new workspace."""
    name = f"garden-{new_id()}"
    await client.create_workspace(name)
    return client.workspace(name)


async def git_in(service: Service, workspace: AsyncWorkspace) -> Callable[..., str]:
    """Make what runs a git command in the repository of a workspace, and returns what it prints."""
    repository = service.data / f"workspaces/{(await workspace.info()).id}.git"
    command = ["git", "-c", "safe.directory=*", "-c", "user.name=Eve", "-c", "user.email=e@x", "-C", str(repository)]

    def git(*arguments: str, given: str = "") -> str:
        done = subprocess.run([*command, *arguments], input=given, capture_output=True, check=True, text=True)  # noqa: S603
        return done.stdout.strip()

    return git


async def erased(workspace: AsyncWorkspace, client: AsyncClient, **target: Any) -> Job:
    """Erase what a preview shows, and return the job at its end."""
    preview = await workspace.preview_erasure(**target)
    job = await workspace.erase(preview.phrase, "It leaked.", by="ada", **target)
    async for each in client.watch_job(job):
        job = each
    assert job.state is JobState.SUCCEEDED, job.message
    return job


async def no_difference(workspace: AsyncWorkspace) -> None:
    """Verify finds nothing."""
    assert [event async for event in workspace.verify() if isinstance(event, Difference)] == []


async def ingested(workspace: AsyncWorkspace, text: str) -> Ingestion:
    """What became of a document."""
    last: Job | None = None
    async for each in workspace.ingest(text, name="letter.md"):
        last = each if isinstance(each, Job) else last
    assert last is not None
    assert last.ingestion is not None
    return last.ingestion


def pushed(git: Callable[..., str], head: str, secret: str) -> str:
    """Make a commit by git alone, with a file that is no node and a message that has the secret; its id."""
    blob = git("hash-object", "-w", "--stdin", given=f"see {secret}\n")
    lines = git("ls-tree", f"{head}^{{tree}}")
    tree = git("mktree", given=f"{lines}\n100644 blob {blob}\tside.txt\n")
    return git("commit-tree", tree, "-p", head, "-m", f"Add a side file about {secret}")


async def test_a_text_is_in_no_file_afterwards_and_old_ids_lead_to_the_new_commits(
    service: Service, client: AsyncClient, garden: AsyncWorkspace, secret: str
) -> None:
    before = await garden.remember("Apples are picked in September.")
    first = await garden.remember(f"The password is {secret}; keep it.", title=f"About {secret}", tags=[secret])
    edited = await garden.revise(first.node.id, f"It was {secret} until May.", message=f"Tell of {secret}")
    await garden.tag("v1", message=f"With {secret}")
    await garden.branch("idea")
    async with garden.session(branch="idea", agent="bee") as session:
        await session.create(f"Draft {secret}", f"On a branch: {secret}", archive="notes")
        on_branch = await session.commit(f"Mention {secret} in the subject")
    await ingested(garden, f"# Letter\n\nDear all, {secret} is the word.\n\n# End\n\nBye.\n")
    git = await git_in(service, garden)
    side = pushed(git, git("rev-parse", "idea"), secret)
    git("branch", "side", side)
    open_session = await garden.session(agent="wasp")
    staged = await open_session.create(f"Staged {secret}", f"Not yet: {secret}", archive="notes")
    other = await open_session.create("Staged pears", "Pears are sweet.", archive="notes")
    assert secret in (await garden.recall("What is the password?")).text
    last = await garden.remember("Cherries come first.")
    assert files_with(service.data, secret.encode())

    job = await erased(garden, client, text=secret)

    assert files_with(service.data, secret.encode()) == []
    await no_difference(garden)
    assert (await garden.node(first.node.id)).content == "It was erased until May."
    for old in (first.commit_id, edited.commit_id, on_branch.commit_id, side, last.commit_id):
        assert secret not in (await garden.show(old)).commit.message
        assert [each async for each in garden.at(old).log()]
    assert (await garden.at(first.commit_id).node(first.node.id)).content == "The password is erased; keep it."
    assert (await garden.at(first.commit_id[:12]).node(first.node.id)).title == "About erased"
    assert git("rev-parse", f"{before.commit_id}^{{commit}}") == before.commit_id, "it has its id"
    assert (await garden.at(before.commit_id).node(before.node.id)).content == "Apples are picked in September."
    assert secret not in (await garden.recall("What is the password?")).text
    assert (await open_session.node(staged.id)).content == "Not yet: erased"
    assert (await open_session.node(other.id)).content == "Pears are sweet."
    await open_session.commit("What was staged")
    assert "erased" in git("for-each-ref", "--format=%(contents)", "refs/tags/v1")
    (stub,) = [each async for each in garden.erasures()]
    assert (stub.id, stub.kind, stub.by, stub.reason, stub.node_ids) == (job.id, "text", "ada", "It leaked.", ())
    assert await garden.erasure(job.id) == stub
    assert git("fsck", "--strict", "--no-dangling") == ""
    with pytest.raises(FailedPreconditionError, match="phrase"):
        await garden.erase("erase text 000000000000", "again", text=secret)


async def test_a_node_leaves_nothing_but_an_empty_one(
    service: Service, client: AsyncClient, garden: AsyncWorkspace, secret: str
) -> None:
    async with garden.session(agent="bee") as session:
        await session.create_archive("notes")
        top = await session.create("Garden", "All about it.", archive="notes")
        node = await session.create(f"Key {secret}", f"The key is {secret}. Nobody knows.", parent=top.id)
        below = await session.create("Below it", "A child.", parent=node.id)
        made = await session.commit("Begin")
    await garden.remember("Something else.")
    preview = await garden.preview_erasure(node=node.id)
    assert (preview.commits, preview.nodes, preview.branches) == (2, 2, 1), "and what was made of it above"
    await erased(garden, client, node=node.id)
    assert files_with(service.data, secret.encode()) == []
    await no_difference(garden)
    left = await garden.at(made.commit_id).node(node.id)
    assert (left.title, left.content, left.parent_id) == ("Erased", "", top.id)
    assert (await garden.node(below.id)).parent_id == node.id
    with pytest.raises(NotFoundError, match="had no node"):
        await garden.preview_erasure(node="0123456789abcdef")


async def test_fields_go_alone_and_a_document_goes_whole(
    service: Service, client: AsyncClient, garden: AsyncWorkspace, secret: str
) -> None:
    node = (await garden.remember(f"Born {secret}.", title="Ada", attributes={"email": secret})).node
    made = await ingested(garden, "# Letter\n\nDear Quince-4411.\n\n# Two\n\nBye Quince-4411.\n")
    archive = made.archive_id
    later = await garden.remember("Later.")
    await erased(garden, client, node=node.id, fields=["content", "attributes.email"])
    assert files_with(service.data, secret.encode()) == []
    assert (await garden.node(node.id)).title == "Ada"
    await erased(garden, client, archive=archive)
    assert files_with(service.data, b"Quince-4411") == []
    await no_difference(garden)
    assert [each.id async for each in garden.archives() if each.id == archive] == []
    shown = await garden.show(later.commit_id)
    assert shown.commit.id != later.commit_id, "an id from before two erasures leads to the commit of now"
    assert len([each async for each in garden.erasures()]) == 2


async def test_what_was_approved_or_asked_before_holds_and_what_is_committed_meanwhile_is_there_afterwards(
    service: Service, client: AsyncClient, garden: AsyncWorkspace, secret: str
) -> None:
    for number in range(8):
        await garden.remember(f"Note {number} with {secret}.")
    other = await garden.remember("Without it.", request_id="once")
    proposing = await garden.session(agent="bee")
    await proposing.create("Proposed", "A change.", archive="notes")
    proposal = await garden.propose("Say it", session=proposing.id)
    shown = (await garden.proposal(proposal.number)).proposal
    await garden.approve(proposal.number, shown.head_commit_id, reviewer=Author("ada"))

    preview = await garden.preview_erasure(text=secret)
    job = await garden.erase(preview.phrase, "It leaked.", text=secret)
    made = [await garden.remember(f"Meanwhile {number}.") for number in range(8)]
    opened = [await garden.session(agent=f"bee-{number}") for number in range(5)]
    async for each in client.watch_job(job):
        job = each
    assert job.state is JobState.SUCCEEDED, job.message

    assert [(await garden.node(each.node.id)).content for each in made] == [f"Meanwhile {n}." for n in range(8)]
    assert len([each async for each in garden.log()]) == 18
    for session in opened:
        await session.create("Later", "Of a session that was open.", archive="notes")
        await session.commit("Go on")
    assert files_with(service.data, secret.encode()) == []
    now = (await garden.proposal(proposal.number)).proposal
    assert now.approved_by == ("ada",)
    assert now.head_commit_id != shown.head_commit_id
    again = await garden.remember("Without it.", request_id="once")
    assert again.commit_id == (await garden.show(other.commit_id)).commit.id != other.commit_id
    await garden.merge_proposal(proposal.number)
    await no_difference(garden)
