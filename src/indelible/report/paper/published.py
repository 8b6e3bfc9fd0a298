"""The paper's numbers as observations: Gan, Li, Wu, Xia, ICCV 2023, main text and appendix.

They ship with the package in per cent, as printed (:mod:`indelible.bench.reported`). That module answers for one cell
of a preset; here whole tables are read, with their printed summaries and the rows quoted from other papers. Sections:

| section | in the paper |
|---|---|
| ``cifar10``, ``imagenet100`` | Tables 1 and 2 (WSR), appendix (WSR and BA) |
| ``cifar100`` | appendix |
| ``components`` | Table 3: the two components |
| ``epsilon``, ``target`` | appendix: magnitude of the perturbation, target class |
| ``mobilenetv2`` | appendix |
| ``ft-learning-rates``, ``adversarial-training`` | appendix: other watermarks, adversarial training |

The figures on trigger size, transparency and architectures have no printed numbers, so they have no section.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from indelible.base.errors import UnknownNameError
from indelible.bench.reported import printed
from indelible.report.paper.observations import COMPONENTS, Observation
from indelible.report.suite import PAPER_ATTACKS

__all__ = ["SECTIONS", "published"]

_PLACE = {
    "cifar10": "Table 1 and appendix",
    "cifar100": "appendix, results on CIFAR-100",
    "imagenet100": "Table 2 and appendix",
}
_EPS = {"cifar10": 0.02, "cifar100": 0.02, "imagenet100": 0.01}
_SUMMARIES = ("avg_drop", "avg")
Rows = Mapping[str, Any]


def _row(
    wsr: Rows, ba: Rows, *, before: str = "none", **coordinates: Any
) -> Iterator[Observation]:  # fmt: skip
    """Yield a printed row: the model before attack, with the row's printed summaries, then after each attack."""
    summaries = {
        f"{measure} {name}": rates[name] / 100
        for measure, rates in (("wsr", wsr), ("ba", ba))
        for name in _SUMMARIES
        if name in rates
    }
    for attack in (None, *PAPER_ATTACKS):
        name = before if attack is None else attack
        yield Observation(
            **coordinates, attack=attack, wsr=_share(wsr.get(name)), ba=_share(ba.get(name)),
            printed=summaries if attack is None else {},
        )  # fmt: skip


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _main(document: Rows, dataset: str) -> Iterator[Observation]:
    for kind, methods in document[dataset]["WSR"].items():
        for method, rates in methods.items():
            factors = {"target": 0, **({"eps": _EPS[dataset]} if method == "app" else {})}
            yield from _row(
                rates, document[dataset]["BA"][kind][method], dataset=dataset, architecture="resnet-18",
                kind=kind, method=method, factors=factors, source=_PLACE[dataset],
            )  # fmt: skip


def _on_cifar10(**rest: Any) -> dict[str, Any]:
    return {"dataset": "cifar10", "architecture": "resnet-18", "kind": "content", **rest}


def _components(document: Rows) -> Iterator[Observation]:
    methods = {parts: method for method, parts in COMPONENTS.items()}
    for row in document["ablation_cifar10_content"]:
        method = methods[row["app"], row["cbn"]]
        wsr = {name: row[name] for name in (*PAPER_ATTACKS, "avg_drop")}
        where = _on_cifar10(method=method, source="Table 3", factors={"target": 0})
        yield from _row({**wsr, "none": row["wsr"]}, {"none": row["ba"]}, **where)


def _epsilon(document: Rows) -> Iterator[Observation]:
    both = document["epsilon_cifar10_content_app"]
    for eps, rates in both["WSR"].items():
        where = _on_cifar10(method="app", source="appendix, varying magnitude", factors={"eps": float(eps)})
        yield from _row(rates, both["BA"][eps], **where)


def _target(document: Rows) -> Iterator[Observation]:
    for method in ("vanilla", "app"):
        both = document[f"target_cifar10_content_{method}"]
        for target, rates in both["WSR"].items():
            where = _on_cifar10(method=method, source="appendix, target classes", factors={"target": int(target)})
            yield from _row(rates, both["BA"][target], **where)


def _mobilenetv2(document: Rows) -> Iterator[Observation]:
    both = document["mobilenetv2_cifar10_content"]
    for method, rates in both["WSR"].items():
        where = _on_cifar10(architecture="mobilenet-v2", method=method, source="appendix, MobileNetV2")
        yield from _row(rates, both["BA"][method], **where)


def _learning_rates(document: Rows) -> Iterator[Observation]:
    for row in document["other_methods_ft_lr"]:
        method = row["method"] + ("*" if row["from_original_paper"] else "")
        where = _on_cifar10(method=method, source="appendix, other watermark methods")
        yield Observation(**where, wsr=_share(row["before"]))
        for name, value in row.items():
            if name.startswith("ft_lr_"):
                factors = {"lr": float(name.removeprefix("ft_lr_"))}
                yield Observation(**where, attack="ft", wsr=_share(value), factors=factors)


def _adversarial(document: Rows) -> Iterator[Observation]:
    for row in document["adversarial_training_cifar10_content"]:
        where = _on_cifar10(method=row["method"], source="appendix, adversarial training")
        yield from _row(row, {}, **where)


SECTIONS: Mapping[str, Callable[[Rows], Iterator[Observation]]] = {
    "cifar10": lambda document: _main(document, "cifar10"),
    "cifar100": lambda document: _main(document, "cifar100"),
    "imagenet100": lambda document: _main(document, "imagenet100"),
    "components": _components,
    "epsilon": _epsilon,
    "target": _target,
    "mobilenetv2": _mobilenetv2,
    "ft-learning-rates": _learning_rates,
    "adversarial-training": _adversarial,
}


@cache
def published(section: str) -> tuple[Observation, ...]:
    """Return the paper's numbers of one section."""
    if section not in SECTIONS:
        raise UnknownNameError("section of the paper", section, SECTIONS)
    return tuple(SECTIONS[section](printed()))
