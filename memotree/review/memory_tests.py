"""Memory tests: writing them, and asking their questions at a state."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from memotree_storage.commit.merge_commit import Identity, Merged, on_head
from memotree_storage.commit.message import compose
from memotree_storage.commit.transaction import WorkspaceTransaction, repository_of
from memotree_storage.commit.write_path import NewCommit, write_commit
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.memory_test import (
    FOLDER,
    InvalidMemoryTestError,
    MemoryTest,
    check_memory_test,
    decode_memory_test,
    encode_memory_test,
    is_test_name,
    name_of_test,
    path_of_test,
)
from memotree_storage.model.normal_form import normalized
from memotree_storage.ports import CommitReader
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.history.committing import Committing, message_of
from memotree.request import lookup
from memotree.request.pages import PageTokens, page_size
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import forest_service_pb2, types_pb2
from memotree.v1 import review_service_pb2 as pb

_MOST_TESTS: Final = 100
_MOST_NAMED: Final = 1000


class MemoryTestNotFoundError(NotFoundError):
    """The branch has no memory test of that name."""

    reason = "MEMORY_TEST_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no memory test {name!r} here. List them with CheckMemory.", "memory test", name)


class Recalls(Protocol):
    """Answers questions from the trees."""

    async def recall(self, request: forest_service_pb2.RecallRequest) -> forest_service_pb2.RecallResponse:
        """Find the nodes that answer a question."""
        ...


@dataclass(frozen=True, slots=True)
class TestFile:
    """The file of a memory test at a commit: its name, and the id of its blob."""

    name: str
    blob: str


class MemoryTests:
    """Writes memory tests, and runs them.

    Args:
        store: The store.
        pages: Makes page tokens.
        committing: Commits on a branch.
        recalling: Answers the questions.
    """

    def __init__(self, store: Store, pages: PageTokens, committing: Committing, recalling: Recalls) -> None:
        self._store = store
        self._pages = pages
        self._committing = committing
        self._recalling = recalling

    async def put(self, request: pb.PutMemoryTestsRequest) -> pb.PutMemoryTestsResponse:
        """Write and delete tests in one commit."""
        tests, deleted = _read_tests(request), list(request.deleted_names)
        if not tests and not deleted:
            raise InvalidInputError.at("tests", "is empty, and no test is named to be deleted.")
        message, identity = message_of(request.message), self._committing.identity(request)
        workspace = await self._committing.workspace(request.workspace)
        branch = request.branch or workspace.default_branch

        async def make(transaction: WorkspaceTransaction) -> pb.PutMemoryTestsResponse:
            async def attempt(head: State) -> Merged | None:
                files = await in_store_thread(_changing, transaction.repository, head.commit_id, tests, deleted)
                if not files:
                    return Merged(head.commit_id, is_new=False)
                new = _commit(branch, head, files, message, identity)
                outcome = await write_commit(transaction, new)
                return None if outcome is None else Merged(outcome.commit_id)

            merged = await on_head(transaction, branch, identity.request, attempt)
            return pb.PutMemoryTestsResponse(commit_id=merged.commit_id)

        return await self._committing.run(workspace, branch, request, pb.PutMemoryTestsResponse, make)

    async def check(self, request: pb.CheckMemoryRequest) -> pb.CheckMemoryResponse:
        """Run the tests of a revision, a page at a time; later pages are of the commit of the first."""
        size = page_size(request.page_size)
        names = _read_names(request.names)
        cursor = self._pages.read(request, {"after": str, "tests": str, **lookup.PINNED})
        workspace = await self._committing.workspace(request.workspace)
        if not cursor:
            await mirror_pushed(self._store, workspace.workspace_id)
        async with self._store.database.connection() as conn:
            place = await lookup.page_revision(conn, request.workspace, request.revision, cursor)
            tests_at = place.state.commit_id
            if cursor:
                tests_at = cursor["tests"]
            elif request.tests_at:
                found = await lookup.find_revision(conn, request.workspace, request.tests_at, "tests_at")
                tests_at = found.state.commit_id
        repository = await repository_of(self._store, workspace.workspace_id)
        files = await in_store_thread(test_files, repository, tests_at)
        _check_there(names, files)
        after = cursor["after"] if cursor else ""
        wanted = [file for file in files if file.name > after and (not names or file.name in names)]
        asked = place.state.session_id or place.state.commit_id
        run = not request.list_only
        results = [await self._result(workspace.workspace_id, asked, repository, file, run) for file in wanted[:size]]
        more = None
        if len(wanted) > size:
            more = {"after": wanted[size - 1].name, "tests": tests_at, **lookup.pinned(place)}
        return pb.CheckMemoryResponse(
            results=results,
            failed_count=sum(not result.passed for result in results) if run else 0,
            next_page_token=self._pages.write(request, more),
        )

    async def run_at(self, workspace_id: str, commit_id: str) -> list[pb.MemoryTestResult]:
        """Run all tests of a commit at that commit.

        Raises:
            UnavailableError: An embedding model does not answer.
        """
        repository = await repository_of(self._store, workspace_id)
        files = await in_store_thread(test_files, repository, commit_id)
        return [await self._result(workspace_id, commit_id, repository, file, run=True) for file in files]

    async def _result(
        self, workspace_id: str, asked: str, repository: CommitReader, file: TestFile, run: bool
    ) -> pb.MemoryTestResult:
        try:
            test = decode_memory_test(file.name, await in_store_thread(repository.read_blob, file.blob))
        except InvalidMemoryTestError as error:
            return pb.MemoryTestResult(test=pb.MemoryTest(name=file.name), faults=[error.message])
        told = _message(test)
        if not run:
            return pb.MemoryTestResult(test=told)
        recall = forest_service_pb2.RecallRequest(
            workspace=workspace_id, revision=asked, query=test.question, token_budget=test.budget
        )
        recall.filter.archives.extend(test.archives)
        try:
            answer = await self._recalling.recall(recall)
        except (NotFoundError, InvalidInputError) as error:
            return pb.MemoryTestResult(test=told, faults=[error.message])
        nodes = [recalled.node for passage in answer.passages for recalled in passage.nodes]
        faults = [*_missing_nodes(test, nodes), *_text_faults(test, answer.text)]
        return pb.MemoryTestResult(
            test=told, passed=not faults, faults=faults, cited_node_ids=[node.id for node in nodes]
        )


def test_files(repository: CommitReader, commit_id: str) -> list[TestFile]:
    """The memory tests of a commit, by name."""
    found = [file for _, files in repository.files_beginning(commit_id, [FOLDER]) for file in files]
    named = [(name_of_test(path), blob) for path, blob in found]
    return sorted((TestFile(name, blob) for name, blob in named if name is not None), key=lambda file: file.name)


def _read_tests(request: pb.PutMemoryTestsRequest) -> list[MemoryTest]:
    if len(request.tests) > _MOST_TESTS:
        raise InvalidInputError.at("tests", f"has {len(request.tests)} items; give at most {_MOST_TESTS}.")
    tests = []
    for number, message in enumerate(request.tests):
        test = MemoryTest(
            message.name,
            message.question,
            tuple(message.expected_node_ids),
            tuple(message.expected_texts),
            tuple(message.unwanted_texts),
            message.token_budget,
            tuple(message.archives),
        )
        check_memory_test(test, f"tests[{number}]")
        tests.append(test)
    names = [*(test.name for test in tests), *request.deleted_names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError.at("tests", f"names {twice!r} twice.")
    _read_names(request.deleted_names, "deleted_names")
    return tests


def _read_names(names: Sequence[str], field: str = "names") -> frozenset[str]:
    if len(names) > _MOST_NAMED:
        raise InvalidInputError.at(field, f"has {len(names)} items; give at most {_MOST_NAMED}.")
    for number, name in enumerate(names):
        if not is_test_name(name):
            raise InvalidInputError.at(f"{field}[{number}]", f"{name[:70]!r} cannot be the name of a memory test.")
    return frozenset(names)


def _check_there(names: Collection[str], files: Sequence[TestFile]) -> None:
    lacking = sorted(set(names) - {file.name for file in files})
    if lacking:
        raise MemoryTestNotFoundError(lacking[0])


def _changing(
    repository: CommitReader, commit_id: str, tests: Sequence[MemoryTest], deleted: Sequence[str]
) -> dict[str, bytes | None]:
    """The files that differ from the commit's."""
    there = {file.name: file.blob for file in test_files(repository, commit_id)}
    files: dict[str, bytes | None] = {}
    for test in tests:
        data = encode_memory_test(test)
        if test.name not in there or repository.read_blob(there[test.name]) != data:
            files[path_of_test(test.name)] = data
    for name in deleted:
        if name not in there:
            raise MemoryTestNotFoundError(name)
        files[path_of_test(name)] = None
    return files


def _commit(branch: str, head: State, files: Mapping[str, bytes | None], message: str, identity: Identity) -> NewCommit:
    return NewCommit(
        branch=branch,
        parent=head.commit_id,
        entries={},
        at_parent={},
        message=compose(message or _usual_message(files), (), identity.request.trailers()),
        author=identity.author,
        committer=identity.committer,
        files=files,
    )


def _usual_message(files: Mapping[str, bytes | None]) -> str:
    written = sorted(name_of_test(path) or path for path, data in files.items() if data is not None)
    deleted = sorted(name_of_test(path) or path for path, data in files.items() if data is None)
    if len(files) == 1:
        return f"Write memory test {written[0]}" if written else f"Delete memory test {deleted[0]}"
    groups = [f"{verb}: {', '.join(names)}" for verb, names in (("Written", written), ("Deleted", deleted)) if names]
    return f"Change {len(files)} memory tests\n\n" + "\n".join(groups)


def _message(test: MemoryTest) -> pb.MemoryTest:
    return pb.MemoryTest(
        name=test.name,
        question=test.question,
        expected_node_ids=test.nodes,
        expected_texts=test.texts,
        unwanted_texts=test.unwanted,
        token_budget=test.budget,
        archives=test.archives,
    )


def _missing_nodes(test: MemoryTest, nodes: Sequence[types_pb2.Node]) -> list[str]:
    cited = {entry_id for node in nodes for entry_id in (node.id, node.archive_id, *node.path)}
    return [
        f"The answer does not cite {node_id}, nor a node below it." for node_id in test.nodes if node_id not in cited
    ]


def _text_faults(test: MemoryTest, answer: str) -> list[str]:
    text = _folded(answer)
    lacking = [f"The answer does not have {wanted!r}." for wanted in test.texts if _folded(wanted) not in text]
    present = [f"The answer has {unwanted!r}." for unwanted in test.unwanted if _folded(unwanted) in text]
    return lacking + present


def _folded(text: str) -> str:
    return " ".join(normalized("NFKC", text).casefold().split())
