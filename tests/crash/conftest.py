"""What the crash tests share."""

import pytest
from crash.filled_folders import FilledFolders


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> FilledFolders:
    """Data folders to copy."""
    return FilledFolders(tmp_path_factory.mktemp("filled"))
