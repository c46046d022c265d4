"""Generate ``memotree/v1`` from the wire contract; with ``--check``, tell whether the committed code is up to date."""

import filecmp
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("memotree") / "v1"
INIT = '"""Generated from ``proto/memotree/v1`` by ``make proto``; never edited."""\n'


def generate(out: Path) -> None:
    """Run the pinned protoc over every file of the contract and write Python modules and stubs below ``out``."""
    scripts = Path(sys.executable).parent
    google = str(resources.files("grpc_tools") / "_proto")
    protos = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto").rglob("*.proto"))
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
            *protos,
        ],
        check=True,
        cwd=ROOT,
    )
    (out / PACKAGE / "__init__.py").write_text(INIT, encoding="utf-8")


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
