"""Put a watermark into a model: one file per method."""

from indelible.embedding.app import APP, AdversarialPerturbation
from indelible.embedding.base import EMBEDDINGS, Embedded, EmbeddingMethod, embed, key_for
from indelible.embedding.cae import ConferrableExamples
from indelible.embedding.cw import CW, CertifiedTraining
from indelible.embedding.ew import EW, ExponentialWeights
from indelible.embedding.ntl import NonTransferable
from indelible.embedding.pgd_at import PGDTraining
from indelible.embedding.rose import Rose
from indelible.embedding.trades import TradeOff
from indelible.embedding.vanilla import Vanilla

__all__ = [
    "APP",
    "CW",
    "EMBEDDINGS",
    "EW",
    "AdversarialPerturbation",
    "CertifiedTraining",
    "ConferrableExamples",
    "Embedded",
    "EmbeddingMethod",
    "ExponentialWeights",
    "NonTransferable",
    "PGDTraining",
    "Rose",
    "TradeOff",
    "Vanilla",
    "embed",
    "key_for",
]
