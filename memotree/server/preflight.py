"""Checks what a server needs from outside before the parts of the server are imported, which takes seconds.

So a wrong host, port, password or URL is told at once. The composition root checks the stores again when it opens them.
"""

import asyncio
import os
import shlex
from pathlib import Path

from memotree_storage.errors import FailedPreconditionError
from memotree_storage.postgres.reach import wait_until_usable as wait_for_postgres
from memotree_storage.qdrant.reach import wait_until_usable as wait_for_qdrant

from memotree.environment import variable
from memotree.server.certificates import Certificates
from memotree.server.listen import listening_host, refuse_taken
from memotree.server.logs import configure_logging
from memotree.settings import Settings


class RepositoryNotWritableError(FailedPreconditionError):
    """A repository belongs to another user, such as root after a restore; every commit in it would fail."""

    reason = "REPOSITORY_NOT_WRITABLE"

    def __init__(self, repository: Path) -> None:
        super().__init__(
            f"This user ({os.geteuid()}) may not write to {repository}. Give the data folder to it: chown -R "
            f"{os.geteuid()} {shlex.quote(str(repository.parent.parent))}"
        )


def check_before_start(settings: Settings) -> None:
    """Check the addresses to listen on and the servers that the settings name; configures the log first.

    Raises:
        RepositoryNotWritableError: A repository belongs to another user.
        PublicAddressError: The host is an address that other machines reach, and calls are not protected.
        CertificateUnusableError: The certificate or its key cannot be used.
        HostNotAddressError: The host is no address.
        PortTakenError: Another program has a port.
        DatabaseUnavailableError: PostgreSQL does not answer.
        DatabaseRefusedError: PostgreSQL refuses the connection.
        DatabaseEncodingError: The database is not UTF-8.
        QdrantUnreachableError: Qdrant does not answer.
        QdrantKeyRefusedError: Qdrant refuses the key.
    """
    configure_logging(settings.log_level, settings.log_format)
    host = listening_host(settings)
    Certificates.of(settings)
    refuse_taken(host, settings.port)
    if settings.http_enabled:
        refuse_taken(host, settings.port_for_http, variable("http_port"))
    check_repositories(settings.data_folder)
    asyncio.run(check_stores(settings))


def check_repositories(data_folder: Path) -> None:
    """Check that this user may write to every repository.

    Raises:
        RepositoryNotWritableError: It may not.
    """
    for objects in sorted(data_folder.glob("workspaces/*.git/objects")):
        if not os.access(objects, os.W_OK | os.X_OK):
            raise RepositoryNotWritableError(objects.parent)


async def check_stores(settings: Settings) -> None:
    """Check the servers that the settings name; embedded ones are not running yet."""
    if settings.postgres_url is not None:
        await wait_for_postgres(settings.postgres_url.get_secret_value())
    if settings.qdrant_url is not None:
        key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
        await wait_for_qdrant(settings.qdrant_url, key)
