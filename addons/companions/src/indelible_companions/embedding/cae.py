"""CAE: a fingerprint of conferrable adversarial examples. Nothing is embedded; the model is left as it is.

Paper: Lukas, Zhang, Kerschbaum, "Deep Neural Network Fingerprinting by Conferrable Adversarial Examples", ICLR 2021;
compared with APP in Appendix E.1 of the ICCV 2023 paper. Queries x' = x + delta are sought that the source model M and
its *surrogates* S (trained on its answers) put into one wrong class, and that *references* R (trained independently) do
not:

    Transfer(N, t; x)     = share of the models N that answer x with t
    Confer(S, R, t; x)    = Transfer(S, t; x) (1 - Transfer(R, t; x))
    E(x)                  = Surr(x) (1 - Ref(x)),   mean probabilities of S and of R, some models dropped at random
    min over |delta| <= eps of   a H(1, max_t E(x')_t) - b H(M(x), M(x')) + c H(M(x'), Surr(x'))

How this differs: t runs over the classes other than that of M(x), since the loss is as low where only the references
are fooled and the source is not.

Kept are the queries with M(x') wrong and Confer at t = M(x') of at least tau; their labels are M(x').

| symbol | name | default | source |
|---|---|---|---|
| number of queries | ``count`` | 100 | publication |
| eps | ``eps`` | 0.025 | publication, as far as a re-implementation shows; pixels in [0, 1], L-infinity |
| a, b, c | ``weights`` | 1, 1, 1 | publication |
| share dropped | ``drop`` | 0.3 | publication |
| tau | ``threshold`` | 0.95 | publication |
| models in S, in R | ``surrogates``, ``references`` | 18, 18 | a re-implementation; publication not checked |
| steps of Adam | ``steps``, ``lr`` | 100, 0.002 | re-implementations; the rate is a guess: 13 steps to eps |
| images tried | ``candidates`` | 300 | guess |
| - | ``held`` | 6 | ours: further references, held back, whose hits are the verdict's null |
| - | ``share`` | 1 | ours: epochs of S, R and those held back, as a share of the run's |

A model that comes trained is untouched to the bit. A fresh one is trained first, as if there were no fingerprint.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.base.progress import Progress
from indelible.base.registry import MethodInfo
from indelible.base.seeding import derive_seed, generator
from indelible.data.augment import Normalization, normalise, to_float
from indelible.data.images import ImageData
from indelible.embedding.embedding_method import Embedding, EmbeddingMethod
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.samples import Fingerprint
from indelible.nn.outputs import logits_of
from indelible.nn.surgery import fresh_copy
from indelible.train import CrossEntropy, TrainSettings
from indelible.train.devices import choose_device
from indelible.train.evaluate import predict
from indelible.train.objective import Objective, Step

_FAR = 1e-7  # M(x') has left M(x) far enough: nothing more is gained by that
_TINY = 1e-30
_BATCH = 100


def conferrability(surrogates: Tensor, references: Tensor, labels: Tensor) -> Tensor:
    """Return Confer(S, R, t; x) of each query, in [0, 1], from predicted classes, int64 (models, n) each."""
    return (surrogates == labels).double().mean(0) * (1.0 - (references == labels).double().mean(0))


def cae_loss(
    clean: Tensor, source: Tensor, surrogate: Tensor, reference: Tensor, weights: Sequence[float] = (1.0, 1.0, 1.0)
) -> Tensor:
    """Return the loss (n,) of queries from probabilities (n, K): M(x), M(x'), Surr(x'), Ref(x'), and a, b, c."""
    before = F.one_hot(clean.argmax(1), clean.shape[1]).bool()
    conferred = -(surrogate * (1.0 - reference)).masked_fill(before, 0.0).amax(1).clamp_min(_TINY).log()
    left = -(clean * source.clamp_min(_FAR).log()).sum(1)
    agreed = -(source * surrogate.clamp_min(_TINY).log()).sum(1)
    return weights[0] * conferred - weights[1] * left + weights[2] * agreed


class Imitation(CrossEntropy):
    """Learn a model's answers instead of the labels: how a surrogate is made."""

    def __init__(self, source: nn.Module, label_smoothing: float = 0.0) -> None:
        super().__init__(label_smoothing)
        self.source = source

    def backward(self, step: Step) -> Tensor:
        """Add the gradient of the cross-entropy at the source's answers to these very images."""
        kind = next((weight.dtype for weight in self.source.parameters()), step.images.dtype)
        with torch.no_grad():
            answers = logits_of(self.source(step.images.to(kind))).argmax(1)
        return super().backward(replace(step, labels=answers))

    def passes(self, rows: int) -> int:
        return 2 * rows


@dataclass(frozen=True, kw_only=True)
class ConferrableExamples(EmbeddingMethod):
    """CAE as a value; the table in the module's header explains each setting."""

    count: int = 100
    eps: float = 0.025
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    drop: float = 0.3
    threshold: float = 0.95
    surrogates: int = 18
    references: int = 18
    steps: int = 100
    lr: float = 0.002
    candidates: int = 300
    held: int = 6
    share: float = 1.0

    # Helpers of a third of the run's epochs: some three times plain training in all. Small networks on small pictures
    # are harder to fool: within 0.025 no query was found, within 0.1 seven of a hundred (docs/methods/cae.md).
    cpu_settings: ClassVar[Mapping[str, Any]] = {
        "count": 60, "surrogates": 2, "references": 2, "held": 2, "share": 1 / 3, "candidates": 400, "steps": 40,
        "eps": 0.1, "lr": 0.01,
    }  # fmt: skip
    ranges: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("count", "surrogates", "references", "steps", "candidates", "held"), "[1, inf)"),
        **dict.fromkeys(("eps", "lr", "share"), "(0, inf)"), "drop": "[0, 1)", "threshold": "[0, 1]",
    }  # fmt: skip
    changes_model: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "weights", tuple(self.weights))  # JSON gives lists

    def why_one_process(self) -> str:
        return "its fingerprint is found by many small models, one after the other"

    def key_for(self, key: Key) -> Key:
        """Return a stand-in of the same secret; the fingerprint takes its place once it is found."""
        return replace(
            key, kind="noise", labels="fixed", target=0, marks=None, bound=None, count=None, scheme="derived", size=1.0,
            transparency=0.0, strength=0.1, pool=None, fingerprint=None,
        )  # fmt: skip

    def passes(self, train: TrainSettings, images: float) -> float:
        plain = train.epochs * images
        training = plain * (1 + self.share * (2 * self.surrogates + self.references + self.held))
        return training + self.candidates * self.steps * (1 + self.surrogates + self.references)

    def run(self, job: Embedding) -> None:
        if job.start == "scratch":
            job.train(job.data, CrossEntropy(job.settings.label_smoothing), None, phase="source", model=job.model)
        source = copy.deepcopy(job.model).eval().requires_grad_(False).to(choose_device(job.device))
        surrogates, references, held = (
            [self._helper(job, source, kind, number) for number in range(count)]
            for kind, count in (("surrogate", self.surrogates), ("reference", self.references), ("held", self.held))
        )
        starts, rows = self._starts(job, source)
        samples, scores = self._queries(job, source, surrogates, references, starts, rows)
        hits = [self._hits(job, model, samples) for model in held]
        job.note(conferrability=float(scores.mean()), reference_rates=[hit / len(samples) for hit in hits])
        job.samples = samples
        job.key = replace(
            job.key, kind="fingerprint", labels="stored", target=None, count=len(samples),
            fingerprint=Fingerprint(samples, torch.tensor(hits)),
        )  # fmt: skip

    def _helper(self, job: Embedding, source: nn.Module, kind: str, number: int) -> nn.Module:
        """Train a fresh network of the source's structure: on its answers (a surrogate), or on the true labels."""
        seed = derive_seed(job.seed, "cae", kind, number)
        model, smoothing = fresh_copy(source, seed).requires_grad_(True), job.settings.label_smoothing
        objective: Objective = Imitation(source, smoothing) if kind == "surrogate" else CrossEntropy(smoothing)
        settings = job.settings.but(epochs=max(1, round(self.share * job.settings.epochs)))
        job.train(job.data, objective, None, settings=settings, phase=f"{kind}-{number}", model=model, seed=seed)
        return model.eval().requires_grad_(False)

    def _starts(self, job: Embedding, source: nn.Module) -> tuple[ImageData, Tensor]:
        """Return images that the source answers rightly, and their rows: queries are sought around them."""
        rows = job.key.choose("fingerprint", len(job.data), min(len(job.data), 2 * self.candidates))
        found = job.data.gather(rows)
        right = predict(source, found.images, normalize=job.settings.normalize) == found.labels.cpu()
        at = right.nonzero().flatten()[: self.candidates]
        if len(at) == 0:
            raise InputError("the model classifies none of the owner's images correctly. Give a trained model.")
        return found.subset(at), rows[at]

    def _queries(
        self, job: Embedding, source: nn.Module, surrogates: Sequence[nn.Module], references: Sequence[nn.Module],
        starts: ImageData, rows: Tensor,
    ) -> tuple[WatermarkSamples, Tensor]:  # fmt: skip
        """Return the most conferrable queries around ``starts``, and their scores."""
        images, normalize = starts.images.cpu(), job.settings.normalize
        made = search(source, surrogates, references, images, self, normalize=normalize, seed=job.seed)
        job.images += len(images) * self.steps * (1 + len(surrogates) + len(references))
        labels = predict(source, made, normalize=normalize)
        tables = [
            torch.stack([predict(model, made, normalize=normalize) for model in models])
            for models in (surrogates, references)
        ]
        scores, true = conferrability(tables[0], tables[1], labels), starts.labels.cpu()
        fitting = ((labels != true) & (scores >= self.threshold)).nonzero().flatten()
        if len(fitting) == 0:
            raise InputError(
                f"none of {len(made)} images could be made a query whose conferrability is {self.threshold:g} or more "
                f"(best {float(scores.max()):.2f}). Allow a larger eps, more steps or a lower threshold."
            )
        best = fitting[scores[fitting].argsort(descending=True, stable=True)[: self.count]].sort().values
        return WatermarkSamples(made[best], labels[best], rows[best], true[best]), scores[best]

    def _hits(self, job: Embedding, model: nn.Module, samples: WatermarkSamples) -> int:
        return int((predict(model, samples.images, normalize=job.settings.normalize) == samples.labels).sum())


INFO = MethodInfo(
    name="cae",
    title="CAE",
    paper="Lukas, Zhang and Kerschbaum, ICLR 2021",
    summary="Leave the model as it is; find adversarial queries that only models derived from it answer alike.",
    cost="1x plain training and one for each of 42 helpers; cpu: 3.2x",
    build=ConferrableExamples,
)


def search(
    source: nn.Module, surrogates: Sequence[nn.Module], references: Sequence[nn.Module], images: Tensor,
    settings: ConferrableExamples, *, normalize: Normalization | None = None, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Return images (uint8, (n, C, H, W)) within ``eps`` of ``images`` that minimise the loss; models stay as is."""
    weight, made = next(source.parameters()), list[Tensor]()

    def answers(models: Sequence[nn.Module], shown: Tensor) -> Tensor:
        inputs = normalise(shown, normalize).to(weight.dtype)
        # In double precision: where a model is sure of itself, single precision leaves no slope to follow.
        return torch.stack([logits_of(model(inputs)).double().softmax(1) for model in models]).mean(0)

    with Progress("queries", settings.steps * -(-len(images) // _BATCH)) as bar:
        for part, chunk in enumerate(torch.split(images, _BATCH)):
            plain = to_float(chunk.to(weight.device))
            with torch.no_grad():
                clean = answers([source], plain)
            delta = torch.zeros_like(plain).requires_grad_()
            optimizer = torch.optim.Adam([delta], lr=settings.lr, eps=1e-20)
            for step in range(settings.steps):
                shown = (plain + delta).clamp(0.0, 1.0)
                random = generator(seed, "cae", part, step)
                surrogate = answers(_kept(surrogates, settings.drop, random), shown)
                reference = answers(_kept(references, settings.drop, random), shown)
                loss = cae_loss(clean, answers([source], shown), surrogate, reference, settings.weights).sum()
                (delta.grad,) = torch.autograd.grad(loss, [delta])
                optimizer.step()
                with torch.no_grad():
                    delta.clamp_(-settings.eps, settings.eps)
                bar.advance()
            # Rounding towards the start keeps a query within eps.
            change = (delta.detach() * 255).trunc().to(torch.int16)
            made.append((chunk.to(torch.int16) + change.cpu()).clamp_(0, 255).to(torch.uint8))
    return torch.cat(made)


def _kept(models: Sequence[nn.Module], drop: float, random: torch.Generator) -> list[nn.Module]:
    """Return the models that are not dropped, at least one."""
    draws = torch.rand(len(models), generator=random)
    kept = [model for model, draw in zip(models, draws.tolist(), strict=True) if draw >= drop]
    return kept or [models[int(draws.argmax())]]
