"""A new generation of a repository takes its place whole or not at all, whatever git does meanwhile."""

from pathlib import Path

import pytest
from memotree_storage.conformance.drafts import MAIN, WHO, draft
from memotree_storage.git.generations import (
    ErasedMark,
    GenerationRacedError,
    PackSink,
    all_refs,
    begin_generation,
    complete_generation,
    new_place,
    put_in_place,
    read_mark,
    recover_generations,
    remove_erased_mark,
    remove_old_generation,
)
from memotree_storage.git.objects import encode_commit
from memotree_storage.git.repository import GitRepository, RepositoryReplacedError
from memotree_storage.git.rewriting import HistoryRewriter
from memotree_storage.model.erasure import ErasureTarget, Redaction
from memotree_storage.ports import TagDraft
from unit.storage.git.judge import Judge

pytestmark = pytest.mark.requirement("GIT-10")

SECRET = "Tulpe-77"  # noqa: S105 - of nobody


def written(repository: GitRepository, parent: str | None, message: str, **files: str) -> str:
    changes = {f"{name}.txt": content.encode() for name, content in files.items()}
    return repository.write_commit(draft(parent, changes, message)).commit_id


def commit(repository: GitRepository, parent: str | None, message: str, **files: str) -> str:
    commit_id = written(repository, parent, message, **files)
    assert repository.move_ref(MAIN, parent, commit_id)
    return commit_id


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository of four commits; the second brings the secret."""
    folder = tmp_path / "garden.git"
    with GitRepository.create(folder) as repository:
        first = commit(repository, None, "Begin", a="one")
        second = commit(repository, first, f"Bring {SECRET}", b=f"It is {SECRET}.")
        third = commit(repository, second, "Take it", b=f"It is {SECRET}!")
        commit(repository, third, f"See commit {second}", c="four")
        tag = repository.write_tag(TagDraft("v1", f"With {SECRET}", WHO), second)
        repository.move_ref("refs/tags/v1", None, tag)
    return folder


def rewritten(place: Path) -> tuple[dict[str, str], dict[str, str], HistoryRewriter]:
    """Build a new generation without the secret; the refs before and after, and what rewrote them."""
    redaction = Redaction(ErasureTarget(text=SECRET))
    begin_generation(place, redaction.raw)
    sink = PackSink(new_place(place))
    rewriter = HistoryRewriter(place, redaction, sink)
    refs = all_refs(place)
    new = rewriter.rewrite(refs)
    sink.finish()
    complete_generation(place, new, ErasedMark("e", rewriter.findings.blobs))
    rewriter.close()
    return refs, new, rewriter


def log(place: Path) -> list[str]:
    return Judge(place).run("log", "--format=%s", "main").splitlines()


def test_the_new_generation_has_the_history_without_the_secret(place: Path) -> None:
    refs, new, rewriter = rewritten(place)
    put_in_place(place, refs)
    remove_old_generation(place)
    assert log(place)[1:] == ["Take it", "Bring erased", "Begin"]
    moved = rewriter.findings.commits
    assert len(moved) == 3, "the commit before the first that had it keeps its id"
    with GitRepository.open(place) as repository:
        second = next(old for old, now in moved.items() if "Bring" in repository.commit_info(now).message)
        assert repository.commit_info(new[MAIN]).message == f"See commit {moved[second]}\n", "it names that of now"
        assert repository.read_path(moved[second], "b.txt") == b"It is erased."
        assert repository.read_tag(new["refs/tags/v1"]) == TagDraft("v1", "With erased\n", WHO)
        assert not repository.exists(second)
    assert read_mark(place) is not None
    remove_erased_mark(place)
    assert read_mark(place) is None
    assert not list(place.parent.glob(".*"))


def test_refs_that_moved_since_keep_the_old_generation_in_its_place(place: Path) -> None:
    refs, _, _ = rewritten(place)
    with GitRepository.open(place) as repository:
        pushed = commit(repository, refs[MAIN], "A push", d="five")
    with pytest.raises(GenerationRacedError):
        put_in_place(place, refs)
    assert all_refs(place)[MAIN] == pushed
    assert log(place)[0] == "A push"


def test_a_ref_of_a_session_that_ended_meanwhile_stops_nothing(place: Path) -> None:
    with GitRepository.open(place) as repository:
        head = repository.ref(MAIN)
        assert repository.move_ref("refs/memotree/keep/s", None, head)
        refs, _, _ = rewritten(place)
        assert repository.move_ref("refs/memotree/keep/s", head, None)
    put_in_place(place, refs)


def test_a_program_that_has_the_old_generation_open_moves_no_ref_of_it_any_more(place: Path) -> None:
    refs, new, _ = rewritten(place)
    with GitRepository.open(place) as repository:
        late = written(repository, refs[MAIN], "Late", late="late")
        with repository.replaced():
            put_in_place(place, refs)
        with pytest.raises(RepositoryReplacedError):
            repository.move_ref(MAIN, refs[MAIN], late)
    assert all_refs(place)[MAIN] == new[MAIN]
    with pytest.raises(AssertionError, match="update-ref"):
        Judge(place.with_name(".garden.old-generation")).run("update-ref", MAIN, refs[MAIN])


@pytest.mark.parametrize("moment", ["begun", "empty place", "refs aside", "switched"])
def test_a_start_ends_or_undoes_what_a_kill_left(place: Path, moment: str) -> None:
    refs, new, _ = rewritten(place)
    old = place.with_name(".garden.old-generation")
    if moment != "begun":
        place.rename(old)
    if moment in {"refs aside", "switched"}:
        (old / "refs").rename(old / "refs.aside")
        (old / "refs").touch()
    if moment == "switched":
        new_place(place).rename(place)
    assert len(list(recover_generations(place.parent))) == (1 if moment in {"begun", "switched"} else 2)
    assert all_refs(place) == (new if moment == "switched" else refs)
    assert not list(place.parent.glob(".*"))
    assert list(recover_generations(place.parent)) == []


def test_signatures_and_odd_headers_are_kept_or_dropped_as_they_must_be(place: Path) -> None:
    with GitRepository.open(place) as repository:
        head = repository.ref(MAIN)
        assert head is not None
        info = repository.commit_info(head)
        plain = encode_commit(bytes.fromhex(info.tree_id), [head], info.author, info.committer, "Signed")
        signed = plain.replace(b"\n\n", b"\nencoding ISO-8859-1\ngpgsig -----BEGIN SSH\n abc\n -----END\n\n", 1)
        with repository.open_pack() as pack:
            name = pack.add(1, signed).hex()
            pack.finish()
        assert repository.move_ref(MAIN, head, name)
    refs, new, rewriter = rewritten(place)
    put_in_place(place, refs)
    assert rewriter.findings.signatures == 1
    shown = Judge(place).run("cat-file", "commit", new[MAIN])
    assert "encoding ISO-8859-1" in shown
    assert "gpgsig" not in shown
