"""The environment variables of a worker process: those that Python and its libraries need, and no others.

The server's own environment may have the key of any service, under any name; a worker process runs code of others.
"""

from collections.abc import Mapping
from typing import Final

_NAMES: Final = frozenset(
    {
        # Where programs, libraries and files are.
        *("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        # Who, where and in which language.
        *("USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR"),
        # The certificates that TLS trusts. Variables of proxies are left out: their URLs may have passwords.
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),
        # How many threads and how much memory libraries in C take, since a worker process has a limit of memory.
        *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX"),
        # Python's own, by name: another variable that begins with PYTHON may be anything.
        *("PYTHONPATH", "PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONSAFEPATH"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONOPTIMIZE", "PYTHONNODEBUGRANGES"),
        *("PYTHONUTF8", "PYTHONIOENCODING", "PYTHONCOERCECLOCALE", "PYTHONTZPATH", "PYTHONINTMAXSTRDIGITS"),
        *("PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "PYTHONDEVMODE"),
        *("PYTHONWARNINGS", "PYTHONWARNDEFAULTENCODING"),
    }
)

_LOCALE: Final = "LC_"


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a worker process gets of an environment."""
    return {name: value for name, value in environment.items() if name in _NAMES or name.startswith(_LOCALE)}
