"""Make a run folder from settings: an embedding, or an attack and what it did to the model.

The commands ``embed`` and ``attack`` and every cell of a benchmark go through here. A folder that holds a broken run is
continued; the file ``run.json`` is written last.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from indelible.attacks import attack, deployed, evaluate_curve, evaluate_transforms
from indelible.attacks.removal_attack import RemovalAttack
from indelible.data.catalog import load
from indelible.data.images import Data, Shape
from indelible.data.splits import Split
from indelible.embedding import embed
from indelible.embedding.embedding_method import EmbeddingMethod
from indelible.keys.key import Key
from indelible.train.evaluate import accuracy, success_rate
from indelible.train.processes import from_first
from indelible.train.run_folder import Architecture, Run, load_weights
from indelible.verification import verify

HELD_OUT = "held_out"
"""Name of the figures, in an attack's record, on images of the attacker that the attack was not given."""


def embed_into(
    folder: Path,
    *,
    data: str,
    network: str,
    key: Callable[[int, Shape], Key],
    method: EmbeddingMethod | Callable[[Key], EmbeddingMethod],
    attacker: float = 0.2,
    weights: Path | None = None,
    seed: int = 0,
    cell: Mapping[str, Any] | None = None,
    **how: Any,
) -> Run:
    """Embed, and keep the result in ``folder``; in a group of processes, the first one writes it.

    ``key`` makes the owner's key for so many classes and images of this shape; called again after a crash, it must give
    the same one; ``method`` is a value, or makes one for that key. ``attacker`` is the share of training images that
    is kept for attacks, ``weights`` a file that the network starts from, ``cell`` what a benchmark says of it; ``how``:
    as of :func:`indelible.embed`.
    """
    train, test = load(data)
    split = Split.draw(len(train), attacker=attacker, seed=seed)
    architecture = Architecture(name=network, classes=len(train.classes), shape=train.shape)
    model = architecture.build(seed)
    if weights is not None:
        load_weights(model, weights)
    # The first process makes the key; the others find it in the folder when they come.
    from_first(lambda: key(len(train.classes), train.shape).digest)
    own = key(len(train.classes), train.shape)
    value = method if isinstance(method, EmbeddingMethod) else method(own)
    embedded = embed(model, train.subset(split.owner), own, value, seed=seed, test=test, folder=folder, **how)

    def keep() -> Run:
        return Run.save(
            folder, model=embedded.model, record=embedded.record, architecture=architecture, data=data, split=split,
            key=embedded.key, verdict=embedded.verdict.to_json(), history=embedded.history, cell=cell,
        )  # fmt: skip

    return from_first(keep)


def attack_into(
    folder: Path,
    victim: Run,
    method: RemovalAttack,
    *,
    scale: str | None = None,
    curve_images: int | None = None,
    images: Data | None = None,
    held_out: Data | None = None,
    judged: bool = True,
    cell: Mapping[str, Any] | None = None,
    **how: Any,
) -> Run:
    """Attack a run's model, look at the result with the key, and keep both in ``folder``; as :func:`embed_into`.

    The attack is given ``images``, by default the attacker's of the run; the accuracy on ``held_out`` goes into the
    record, as does the ``scale`` of the settings. ``curve_images`` test images, by default all, measure strengths that
    were not chosen. Unless ``judged``, no key is needed, and there is neither verdict nor curve. ``how`` are further
    arguments of :func:`indelible.attack`.
    """
    owner, attacker, test = victim.images()
    # Read now, so that a missing key is told before the work; the attack itself is not given it.
    key = victim.key() if judged else None
    normalize, stolen = victim.normalize(), victim.model()
    few = test if curve_images is None else test.subset(torch.arange(min(curve_images, len(test))))
    attacked = attack(stolen, attacker if images is None else images, method, normalize=normalize, folder=folder, **how)

    def keep() -> Run:
        record = replace(attacked.record, settings={**attacked.record.settings, "scale": scale})
        if held_out is not None:
            before, after = (
                accuracy(model, held_out, normalize=normalize)
                for model in (stolen, deployed(attacked.model, record, normalize=normalize))
            )
            figures = {"images": len(held_out), "before": before, "after": after}
            record = replace(record, metrics={**record.metrics, HELD_OUT: figures})
        curve, transforms = None, None
        if key is not None:
            # The attack is over; only now somebody with the key looks at what it did.
            rates = _rates(key, owner, few, normalize)
            if attacked.curve is not None:
                curve = {"name": attacked.curve.name, "chosen": attacked.curve.chosen, "images": len(few)}
                curve["rows"] = evaluate_curve(attacked.curve, rates)
            if "preprocessing" in record.metrics:
                transforms = evaluate_transforms(attacked.model, rates, normalize=normalize)
        name = attacked.architecture or victim.architecture.name
        return Run.save(
            folder, model=attacked.model, record=record, architecture=replace(victim.architecture, name=name),
            data=victim.data, split=victim.split(), parent=victim.folder, verdict=verdict_of if judged else None,
            curve=curve, transforms=transforms, history=attacked.history, cell=cell,
        )  # fmt: skip

    return from_first(keep)


def verdict_of(run: Run, key: Key | None = None) -> Mapping[str, Any]:
    """Verify a run's model, as whoever holds it runs it; by default with its owner's key."""
    normalize = run.normalize()
    suspect = deployed(run.model(), run.record, normalize=normalize)
    key = key or run.key()
    owner, _, test = run.images()
    embedded = key.questions(owner, None) if key.labels == "keyed" else None
    return verify(suspect, key, test, embedded=embedded, normalize=normalize).to_json()


def _rates(key: Key, owner: Data, test: Data, normalize: Any) -> Callable[[nn.Module], dict[str, float]]:
    asked = key.questions(owner, test)

    def rates(model: nn.Module) -> dict[str, float]:
        ba = accuracy(model, test, normalize=normalize)
        if key.labels == "codebook":  # its verdict asks nothing beyond its WSR; other verdicts ask decoys as well
            found = verify(model, key, test, accuracy=False, normalize=normalize)
            return {"ba": ba, "wsr": found.wsr, "p_value": found.p_value, "owned": found.owned}
        return {"ba": ba, "wsr": success_rate(model, asked, normalize=normalize)}

    return rates
