"""Generate ``memotree/v1`` from the wire contract; with ``--check``, tell whether the committed code is up to date."""

import filecmp
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("memotree") / "v1"
COMMENTS = "contract.json"
"""The comments of the contract, which generated code leaves out and descriptions of tools are made of."""

INIT = '"""Generated from ``proto/memotree/v1`` by ``make proto``; never edited."""\n'


def generate(out: Path) -> None:
    """Run the pinned protoc over every file of the contract and write Python modules and stubs below ``out``."""
    scripts = Path(sys.executable).parent
    google = str(resources.files("grpc_tools") / "_proto")
    protos = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto").rglob("*.proto"))
    sources = out / "sources.binpb"
    subprocess.run(  # noqa: S603 - our own arguments
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{ROOT / 'proto'}",
            f"-I{google}",
            f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out=quiet:{out}",
            f"--mypy_grpc_out=quiet:{out}",
            f"--descriptor_set_out={sources}",
            "--include_source_info",
            *protos,
        ],
        check=True,
        cwd=ROOT,
    )
    (out / PACKAGE / "__init__.py").write_text(INIT, encoding="utf-8")
    found = dict(
        comment for file in FileDescriptorSet.FromString(sources.read_bytes()).file for comment in comments(file)
    )
    text = json.dumps(found, ensure_ascii=False, indent=0, sort_keys=True)
    (out / PACKAGE / COMMENTS).write_text(f"{text}\n", encoding="utf-8")


def comments(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """The full name of everything in a file that has a comment, and the comment; paragraphs keep their blank line."""
    for location in file.source_code_info.location:
        name = full_name(file, location.path)
        if name and location.leading_comments:
            paragraphs = location.leading_comments.strip().split("\n\n")
            yield name, "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def full_name(file: FileDescriptorProto, path: Sequence[int]) -> str:
    """What a path of the source information leads to; empty for what has no name (a whole file, an option)."""
    names, place = [file.package], _Place(file)
    for number, index in zip(path[::2], path[1::2], strict=False):
        step = place.step(number, index)
        if step is None:
            return ""
        names.append(step.name)
        place = _Place(step)
    return ".".join(names) if len(names) > 1 and len(path) % 2 == 0 else ""


class _Place:
    """A descriptor and the named things in it."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    def step(self, number: int, index: int) -> Any:
        """The named thing at that field number and index, or ``None``."""
        field = self._descriptor.DESCRIPTOR.fields_by_number.get(number)
        if field is None or not field.is_repeated or field.message_type is None:
            return None
        found = getattr(self._descriptor, field.name)[index]
        return found if hasattr(found, "name") and isinstance(found.name, str) else None


def main() -> int:
    """Write the generated code, or compare it; the exit status is 1 when a comparison fails."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        names = sorted(path.name for path in (fresh / PACKAGE).iterdir() if path.is_file())
        present = {path.name for path in (ROOT / PACKAGE).glob("*") if path.is_file()}
        if "--check" in sys.argv:
            _, different, missing = filecmp.cmpfiles(fresh / PACKAGE, ROOT / PACKAGE, names, shallow=False)
            stale = sorted({*different, *missing, *(present - set(names))})
            if stale:
                sys.stderr.write(f"memotree/v1 is not what proto/ says: {', '.join(stale)}. Run `make proto`.\n")
            return int(bool(stale))
        for name in present - set(names):
            (ROOT / PACKAGE / name).unlink()
        for name in names:
            shutil.copyfile(fresh / PACKAGE / name, ROOT / PACKAGE / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
