"""Put a watermark into a model: one file per method."""

from indelible.embedding.app import APP as APP
from indelible.embedding.app import AdversarialPerturbation as AdversarialPerturbation
from indelible.embedding.base import EMBEDDINGS as EMBEDDINGS
from indelible.embedding.base import Embedded as Embedded
from indelible.embedding.base import EmbeddingMethod as EmbeddingMethod
from indelible.embedding.base import embed as embed
from indelible.embedding.base import key_for as key_for
from indelible.embedding.cae import ConferrableExamples as ConferrableExamples
from indelible.embedding.cw import CW as CW
from indelible.embedding.cw import CertifiedTraining as CertifiedTraining
from indelible.embedding.ew import EW as EW
from indelible.embedding.ew import ExponentialWeights as ExponentialWeights
from indelible.embedding.ntl import NonTransferable as NonTransferable
from indelible.embedding.pgd_at import PGDTraining as PGDTraining
from indelible.embedding.rose import Rose as Rose
from indelible.embedding.trades import TradeOff as TradeOff
from indelible.embedding.vanilla import Vanilla as Vanilla
