"""What is signed with an SSH key, git verifies; and nothing else than what was signed."""

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.signing import Signer, SigningKeyError, load_signer
from memotree_storage.ports import CommitDraft, Signature, TagDraft, WrittenCommit

pytestmark = [
    pytest.mark.requirement("GIT-11"),
    pytest.mark.skipif(
        shutil.which("ssh-keygen") is None or shutil.which("git") is None, reason="needs git and OpenSSH"
    ),
]

WHO = Signature("MemoTree", "memotree@localhost", datetime(2026, 5, 1, 12, tzinfo=UTC))
KINDS = ("ed25519", "ecdsa-256", "ecdsa-384", "ecdsa-521", "rsa-3072")


def made(path: Path, kind: str = "ed25519", passphrase: str = "", *options: str) -> Path:
    """A new key of OpenSSH."""
    name, _, bits = kind.partition("-")
    size = ("-b", bits) if bits else ()
    command = ["ssh-keygen", "-q", "-t", name, *size, "-N", passphrase, "-C", "", "-f", str(path), *options]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)  # noqa: S603
    return path


class Checked:
    """A repository that signs with a key, and git with the public half of it."""

    def __init__(self, folder: Path, key: Path) -> None:
        self.path = folder / "signed.git"
        self.repository = GitRepository.create(self.path, signer=load_signer(key))
        self._allowed = folder / "allowed-signers"
        self._allowed.write_text(f"memotree@localhost {key.with_name(f'{key.name}.pub').read_text()}")

    def git(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        options = ("-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={self._allowed}")
        command = ["git", "--git-dir", str(self.path), *options, *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, input=stdin)  # noqa: S603

    def commit(self, parent: str | None, text: str, tag: TagDraft | None = None, *merged: str) -> WrittenCommit:
        draft = CommitDraft(parent, {"file.txt": text.encode()}, f"{text}\n\nWhy.\n", WHO, WHO, tag=tag, merged=merged)
        return self.repository.write_commit(draft)


@pytest.fixture(scope="module", params=KINDS)
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checked:
    folder = tmp_path_factory.mktemp("checked")
    return Checked(folder, made(folder / "key", request.param))


def test_git_verifies_commits_merges_and_tags(checked: Checked) -> None:
    first = checked.commit(None, "One", TagDraft("v1", "The first\n", WHO))
    second = checked.commit(first.commit_id, "Two, \u00fc and \u6c34")
    merge = checked.commit(second.commit_id, "Merged", None, first.commit_id)
    with checked.repository.open_pack() as pack:
        grouped = pack.write_commit(CommitDraft(merge.commit_id, {}, "In a group\n", WHO, WHO))
        pack.finish()
    for written in (first, second, merge, grouped):
        verified = checked.git("verify-commit", written.commit_id)
        assert verified.returncode == 0, verified.stderr
        assert 'Good "git" signature for memotree@localhost' in verified.stderr
    later = checked.repository.write_tag(TagDraft("v2", "Later", WHO), second.commit_id)
    for tag in (first.tag_id, later):
        assert tag is not None
        verified = checked.git("verify-tag", tag)
        assert verified.returncode == 0, verified.stderr


def test_a_signature_is_no_part_of_what_is_read(checked: Checked) -> None:
    written = checked.commit(None, "One", TagDraft("v1", "The first\n", WHO))
    assert written.tag_id is not None
    assert checked.repository.read_tag(written.tag_id) == TagDraft("v1", "The first\n", WHO)
    found = checked.repository.commit_info(written.commit_id)
    assert (found.message, found.author, found.committer) == ("One\n\nWhy.\n", WHO, WHO)


def test_git_refuses_a_commit_with_other_bytes_or_another_key(tmp_path: Path) -> None:
    checked = Checked(tmp_path, made(tmp_path / "key"))
    written = checked.commit(None, "One")
    data = checked.git("cat-file", "commit", written.commit_id).stdout.replace("One", "Two")
    forged = checked.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=data).stdout.strip()
    assert len(forged) == 40
    assert checked.git("verify-commit", forged).returncode != 0
    (tmp_path / "other").mkdir()
    other = Checked(tmp_path / "other", made(tmp_path / "other" / "key"))
    checked.repository = GitRepository.open(checked.path, signer=other.repository._signer)
    assert checked.git("verify-commit", checked.commit(None, "Three").commit_id).returncode != 0


def test_the_fingerprint_is_that_of_openssh(tmp_path: Path) -> None:
    key = made(tmp_path / "key")
    shown = subprocess.check_output(["ssh-keygen", "-l", "-f", str(key)], text=True)  # noqa: S603, S607
    assert load_signer(key).fingerprint == shown.split()[1]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("missing", "no such file"),
        ("passphrase", "it has a passphrase"),
        ("text", "no private key of OpenSSH"),
        ("public", "no private key of OpenSSH"),
        ("short", "OpenSSH wants 2048"),
    ],
)
def test_a_key_that_cannot_sign_is_refused_with_the_reason(tmp_path: Path, fault: str, why: str) -> None:
    key = tmp_path / "key"
    if fault == "passphrase":
        made(key, passphrase="a long one")  # noqa: S106 - of nobody
    elif fault == "public":
        key = made(key).with_name("key.pub")
    elif fault == "short":
        made(key, "rsa-1024")
    elif fault == "text":
        key.write_text("no key\n")
    with pytest.raises(SigningKeyError, match=why):
        load_signer(key)


def test_a_number_whose_first_bit_is_set_is_signed_right(tmp_path: Path) -> None:
    """Half of all ECDSA signatures have one, and need a zero before it."""
    checked = Checked(tmp_path, made(tmp_path / "key", "ecdsa-256"))
    signer = checked.repository._signer
    assert isinstance(signer, Signer)
    allowed = tmp_path / "allowed-signers"
    for number in range(16):
        signature = tmp_path / "signature"
        signature.write_bytes(signer.sign(str(number).encode()))
        command = ["ssh-keygen", "-Y", "verify", "-n", "git", "-f", str(allowed), "-s", str(signature)]
        subprocess.run(  # noqa: S603
            [*command, "-I", "memotree@localhost"], input=str(number).encode(), check=True, capture_output=True
        )
