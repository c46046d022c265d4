"""The embedding models that this server can use: one by its name, and the one that a start uses."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import structlog
from memotree_storage.errors import InvalidInputError
from memotree_storage.ports import Embedder

from memotree.models import builtin
from memotree.models.builtin import WordllamaEmbedder
from memotree.models.cache import AnswerCache
from memotree.models.local_model import LocalEmbedder, LocalModel, LocalModelMissingError
from memotree.models.minilm import MINILM
from memotree.models.universal import UNIVERSAL

if TYPE_CHECKING:  # the SDK takes a second to import, and most servers start without it
    from memotree.models.embedding import EndpointEmbedder

_log: Final = structlog.get_logger(__name__)

LOCAL: Final[Mapping[str, LocalModel]] = {model.name: model for model in (MINILM, UNIVERSAL)}
"""The local models by name."""


class UnknownEmbeddingError(InvalidInputError):
    """This server cannot use an embedding model of this name, or not with vectors of this length."""

    reason = "UNKNOWN_EMBEDDING"


class EmbeddingModels:
    """Finds embedding models.

    Args:
        cache: The cache of vectors.
        remote: The model behind the URL that the settings name; ``None`` if they name none.
        local: The name of the local model that the settings name; "" if they name none.
    """

    def __init__(self, cache: AnswerCache, remote: "EndpointEmbedder | None", local: str = "") -> None:
        self.builtin = WordllamaEmbedder()
        """The built-in model with its longest vectors."""
        self._cache = cache
        self._remote = remote
        self._is_named = bool(local) or remote is not None
        self.configured: Embedder = remote or (LocalEmbedder(LOCAL[local], cache) if local else self.builtin)
        """The model of the settings."""

    def find(self, model: str, dimensions: int = 0) -> Embedder:
        """Returns a model; it may have to be opened.

        Args:
            model: Its name; the built-in one may be named without the length of its vectors.
            dimensions: The length of its vectors; 0 for its own.

        Raises:
            UnknownEmbeddingError: If there is no such model, or it has no vectors of this length.
        """
        if self._remote is not None and model == self._remote.model:
            return self._remote if dimensions in {0, self._remote.dimensions} else self._remote.of_length(dimensions)
        if local := LOCAL.get(model):
            _check_length(model, dimensions, (local.dimensions,))
            return self.configured if self.configured.model == model else LocalEmbedder(local, self._cache)
        sizes = {f"{builtin.NAME}-{size}": size for size in builtin.SIZES}
        if model == builtin.NAME or model in sizes:
            _check_length(model, dimensions, [sizes[model]] if model in sizes else builtin.SIZES)
            size = sizes.get(model) or dimensions or builtin.DIMENSIONS
            return self.builtin if size == builtin.DIMENSIONS else WordllamaEmbedder(size)
        here = [builtin.NAME, *LOCAL, *([self._remote.model] if self._remote else [])]
        raise UnknownEmbeddingError.at(
            "model",
            f"{model!r} is none of {', '.join(here)}. To use a model behind a URL, name both in the settings and start "
            "the server again; until then it goes on with the present one.",
        )

    @staticmethod
    async def open(embedder: Embedder) -> None:
        """Finds out the length of a remote model's vectors, or loads a local model; the built-in one needs nothing.

        Raises:
            LocalModelMissingError: If a local model is not installed.
            ModelUnavailableError: If a remote model does not answer, and its vector length is not cached.
            ModelRefusedError: If its endpoint refuses the call.
        """
        if isinstance(embedder, LocalEmbedder):
            await embedder.load()
        elif not isinstance(embedder, WordllamaEmbedder):
            await cast("EndpointEmbedder", embedder).learn()

    async def at_start(self, model: str, dimensions: int) -> Embedder:
        """Returns the model that a start uses, opened: that of the index, or else the one of the settings.

        Args:
            model: The model of the index that answers; "" if there is none yet.
            dimensions: The length of its vectors.

        Raises: those of `open`.
        """
        used = self.configured
        if model and not self._is_configured(model, dimensions):
            try:
                used = self.find(model, dimensions)
                await self.open(used)
            except (UnknownEmbeddingError, LocalModelMissingError) as error:
                used = self.configured
                _log.warning("the embedding model of the index cannot be used any more", model=model, why=error.message)
        await self.open(used)
        if notice := self.notice(used):
            _log.warning(notice)
        return used

    def notice(self, used: Embedder) -> str:
        """Returns what to do if the settings name another model than the one that is used; else an empty text."""
        if not self._is_named or self._is_configured(used.model, used.dimensions):
            return ""
        wanted = self.configured
        length = f" --dimensions {wanted.dimensions}" if wanted.model == used.model else ""
        return (
            f"The settings name the embedding model {wanted.model!r}, but the index has vectors of {used.model!r} of "
            f"length {used.dimensions}, and answers with them. Run `memotree reindex --embedding "
            f"{wanted.model}{length}` to make an index with the new model while this one answers, or change the "
            "settings back."
        )

    def _is_configured(self, model: str, dimensions: int) -> bool:
        """Whether a model is that of the settings; the length of a remote model's vectors may not be known yet."""
        return self.configured.model == model and self.configured.dimensions in {0, dimensions}

    def as_remote(self, embedder: Embedder) -> "EndpointEmbedder | None":
        """Returns an embedder that is behind a URL as such; ``None`` for others."""
        is_remote = self._remote is not None and isinstance(embedder, type(self._remote))
        return cast("EndpointEmbedder", embedder) if is_remote else None


def _check_length(model: str, dimensions: int, known: "tuple[int, ...] | list[int]") -> None:
    if dimensions and dimensions not in known:
        lengths = ", ".join(map(str, sorted(known)))
        raise UnknownEmbeddingError.at("dimensions", f"{model!r} has vectors of length {lengths}, not {dimensions}.")
