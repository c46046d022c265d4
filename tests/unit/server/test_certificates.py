"""A certificate that cannot be used is read once, and again when its files change or after a while."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from integration.authorities import Authority
from structlog.testing import capture_logs

from memotree.server import certificates as certificates_module
from memotree.server.certificates import Certificates

pytestmark = pytest.mark.requirement("SERVE-3")


class Counting(Certificates):
    """Counts how often the files are read."""

    reads = 0

    def _read(self) -> "certificates_module._Pair":
        self.reads += 1
        return super()._read()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.renew()
    return made


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The present time, which stands still unless the test changes it."""
    made = [1_000.0]
    monkeypatch.setattr(certificates_module, "time", SimpleNamespace(monotonic=lambda: made[0]))
    return made


def handshakes(certificates: Counting, count: int = 5) -> tuple[int, list[str]]:
    """How often the files are read by so many handshakes, and what is logged."""
    before = certificates.reads
    with capture_logs() as logged:
        for _ in range(count):
            certificates._renewed()
    return certificates.reads - before, [each["log_level"] for each in logged]


@pytest.mark.parametrize("content", [b"no certificate", None])
def test_what_cannot_be_used_is_read_once_until_it_changes(
    authority: Authority, now: list[float], content: bytes | None
) -> None:
    certificates = Counting(authority.certificate, authority.key)
    before = certificates._renewed()
    authority.certificate.unlink()
    if content is not None:
        authority.certificate.write_bytes(content)
    assert handshakes(certificates) == (1, ["warning"])
    assert certificates._renewed() is before
    authority.certificate.write_bytes(b"no certificate either")
    assert handshakes(certificates) == (1, ["warning"])
    for _ in range(2):
        authority.renew()
        assert handshakes(certificates) == (1, ["info"])
        assert certificates._renewed() is not before
        authority.certificate.write_bytes(b"no certificate")
        assert handshakes(certificates) == (1, ["warning"]), "one that is broken again is told again"
    assert now == [1_000]


def test_it_is_tried_again_after_a_while_since_the_cause_may_be_gone(
    authority: Authority, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Counting(authority.certificate, authority.key)

    def refused(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    authority.renew()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refused)
        assert handshakes(certificates) == (1, ["warning"])
    assert handshakes(certificates) == (0, [])
    now[0] += 61
    assert handshakes(certificates) == (1, ["info"])
