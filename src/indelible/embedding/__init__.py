"""Put a watermark into a model: one file per method."""

from indelible.embedding.app import APP as APP
from indelible.embedding.app import AdversarialPerturbation as AdversarialPerturbation
from indelible.embedding.base import EMBEDDINGS as EMBEDDINGS
from indelible.embedding.base import Embedded as Embedded
from indelible.embedding.base import EmbeddingMethod as EmbeddingMethod
from indelible.embedding.base import embed as embed
from indelible.embedding.cw import CW as CW
from indelible.embedding.cw import CertifiedTraining as CertifiedTraining
from indelible.embedding.ew import EW as EW
from indelible.embedding.ew import ExponentialWeights as ExponentialWeights
from indelible.embedding.vanilla import Vanilla as Vanilla
