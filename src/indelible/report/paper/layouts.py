"""One description per table of the paper; no table has a function of its own.

A layout says which coordinate each row heading shows, which attacks are columns, and how a row is summed up. What is
printed follows from it: before attack BA and WSR, after each attack WSR, the summary; and the same once more for BA.

| summary | title | of a row | source |
|---|---|---|---|
| ``avg_drop`` | AvgDrop | WSR before minus the mean WSR after the attacks | caption of Table 1 |
| ``avg`` | AVG | mean after the attacks | appendix, varying magnitude |
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from indelible.report.names import short_title
from indelible.report.paper.observations import COMPONENTS, Observation, Results
from indelible.report.paper.published import SECTIONS
from indelible.report.suite import PAPER_ATTACKS

__all__ = ["BEFORE", "LAYOUTS", "MAIN", "Axis", "Condition", "Layout", "layout_for", "title_of"]

_METHODS = ("unmarked", *list(COMPONENTS)[:1], "ew", "cw", "rose*", "rose", "ntl*", "ntl", "cae*", "cae", "pgd-at",
            "trades", *list(COMPONENTS)[1:])  # fmt: skip
_TITLES = {
    "unmarked": "Unmarked",
    "vanilla": "Vanilla", "ew": "EW", "cw": "CW", "control": "c-BN only", "app-only": "APP only", "app": "APP",
    "pgd-at": "PGD-AT", "rose*": "ROSE*", "rose": "ROSE", "ntl*": "NTL*", "ntl": "NTL", "cae*": "CAE*", "cae": "CAE",
    "trades": "TRADES", "content": "Content", "noise": "Noise", "unrelated": "Unrelated", "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100", "imagenet100": "ImageNet subset", "resnet-18": "ResNet-18", "resnet-50": "ResNet-50",
    "vgg-16": "VGG-16", "mobilenet-v2": "MobileNetV2",
}  # fmt: skip


def title_of(value: Any) -> str:
    """Write a coordinate for people; a name that is not known stays as it is."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "✓" if value else "–"
    if isinstance(value, float):
        return f"{value:g}"
    return _TITLES.get(str(value), str(value))


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A column of row headings.

    Attributes:
        title: Its heading.
        field: The coordinate that it shows.
        order: Its values in the order of the paper; others follow in their own order.
    """

    title: str
    field: str
    order: tuple[Any, ...] = ()

    def rank(self, value: Any) -> tuple[int, float, str]:
        """Return what rows are sorted by."""
        if value in self.order:
            return self.order.index(value), 0.0, ""
        return len(self.order), float(value) if isinstance(value, int | float) else 0.0, str(value)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What happened to a model: an attack, and what it was made with if the table varies that."""

    title: str
    attack: str | None
    factors: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, observation: Observation) -> bool:
        """Tell whether ``observation`` was made under it."""
        if not self.factors:
            return observation.column == self.attack
        return observation.attack == self.attack and all(
            observation.factors.get(name) == value for name, value in self.factors.items()
        )


BEFORE = Condition(title="Before", attack=None)
KIND = Axis(title="Type", field="kind", order=("content", "noise", "unrelated"))
METHOD = Axis(title="Method", field="method", order=_METHODS)
_SIX = tuple(Condition(title=name.upper(), attack=name) for name in PAPER_ATTACKS)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A table.

    Attributes:
        name: What it is called on the command line.
        title: Its heading.
        caption: What it shows, in a sentence.
        axes: Row headings; rows that agree in all but the last are a group.
        conditions: The attacks, in the order of the columns.
        summary: How a row is summed up.
        counted: The attacks that a summary is taken over; by default all of the table.
        sections: Where the paper's numbers come from; none if it prints none.
        only: Coordinates that every row has.
        methods: Whose reported rows are shown without a measurement beside them; empty for all.
        presets: Names of presets that measure it.
        grouped: Whether rows are compared within their groups, or all with all.
        bold: Whether the best of each column is bold.
        across: What a figure's horizontal axis shows: the attacks, the last row heading, or the groups.
        unmeasured: Whether reported rows stand without a measurement where others have one.
        note: What a reader must know beside the caption.
    """

    name: str
    title: str
    caption: str
    axes: tuple[Axis, ...] = (KIND, METHOD)
    conditions: tuple[Condition, ...] = _SIX
    summary: Literal["avg_drop", "avg"] | None = "avg_drop"
    counted: tuple[Condition, ...] | None = None
    sections: tuple[str, ...] = ()
    only: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    grouped: bool = True
    bold: bool = True
    across: Literal["attacks", "rows", "groups"] = "attacks"
    unmeasured: bool = True
    note: str = ""

    @property
    def summed(self) -> tuple[Condition, ...]:
        """The attacks that a summary is taken over."""
        return self.conditions if self.counted is None else self.counted

    @property
    def as_in_the_paper(self) -> bool:
        """Whether a summary is over the paper's attacks, so that the one that it prints can stand beside it."""
        return self.counted is None or {one.attack for one in self.counted} == set(PAPER_ATTACKS)

    def admits(self, observation: Observation) -> bool:
        """Tell whether ``observation`` belongs into the table."""
        return all(observation.value(name) == value for name, value in self.only.items())


_FOUR = ("vanilla", "ew", "cw", "app")
_SAME = {"dataset": "cifar10", "kind": "content"}


def _main(dataset: str, *presets: str, sections: Sequence[str] = (), note: str = "") -> Layout:
    title = title_of(dataset)
    return Layout(
        name=dataset, title=title, sections=(dataset, *sections), methods=_FOUR, presets=presets, note=note,
        only={"dataset": dataset},
        caption=f"{title}: ways to embed three kinds of watermark, against six removal attacks.",
    )  # fmt: skip


_ALL = (
    _main("cifar10", "cifar10-paper", "cifar10-cpu", sections=("components",)),
    _main("cifar100", "cifar100-paper"),
    _main("imagenet100", "imagenet100-paper"),
    Layout(
        name="ablation-components", title="The two components", sections=("components",), only=_SAME,
        caption="APP and clean-sample BatchNorm (c-BN), alone and together; content mark, CIFAR-10.", grouped=False,
        axes=(Axis(title="APP", field="perturbation"), Axis(title="c-BN", field="cbn")),
        presets=("ablation-components",),
    ),
    Layout(
        name="ablation-epsilon", title="Magnitude of the perturbation", sections=("epsilon",), summary="avg",
        caption="APP with perturbations of growing relative magnitude ε; content mark, CIFAR-10.", across="rows",
        axes=(Axis(title="ε", field="eps"),), only=_SAME, presets=("ablation-epsilon",), grouped=False,
    ),
    Layout(
        name="ablation-target", title="Target classes", sections=("target",), summary="avg", bold=False, only=_SAME,
        caption="Vanilla and APP with the target classes 0 to 4; content mark, CIFAR-10.", across="rows",
        axes=(METHOD, Axis(title="Target", field="target")), presets=("ablation-target",),
    ),
    Layout(
        name="ablation-trigger", title="Size and transparency of the trigger", summary=None, across="groups",
        caption="Content marks of several sizes and transparencies, after fine-tuning; CIFAR-10.", only=_SAME,
        axes=(Axis(title="Transparency", field="transparency"), Axis(title="Size", field="size"), METHOD),
        conditions=_SIX[:1], presets=("ablation-trigger",), note="The paper shows these results in a figure only.",
    ),
    Layout(
        name="architectures", title="Architectures", sections=("cifar10", "mobilenetv2"), summary=None, methods=_FOUR,
        across="groups",
        caption="Four architectures against FT, ANP, NAD and MCR; content mark, CIFAR-10.", only=_SAME,
        axes=(Axis(title="Network", field="architecture", order=("mobilenet-v2", "vgg-16", "resnet-18", "resnet-50")),
              METHOD),
        conditions=tuple(one for one in _SIX if one.attack in {"ft", "anp", "nad", "mcr"}), presets=("architectures",),
        note="The paper shows these results in figures; numbers of ResNet-18 and MobileNetV2 are from its tables.",
    ),
    Layout(
        name="mobilenetv2", title="MobileNetV2", sections=("mobilenetv2",), methods=_FOUR, axes=(METHOD,),
        caption="MobileNetV2 on CIFAR-10, content mark.", presets=("mobilenetv2",), grouped=False,
        only={**_SAME, "architecture": "mobilenet-v2"},
    ),
    Layout(
        name="ft-learning-rates", title="Learning rates of fine-tuning", sections=("ft-learning-rates",), summary=None,
        caption="WSR after fine-tuning at four learning rates; CIFAR-10.", axes=(METHOD,), grouped=False,
        conditions=tuple(Condition(title=rate, attack="ft", factors={"lr": float(rate)})
                         for rate in ("1e-5", "1e-3", "1e-2", "2e-2")),
        presets=("ft-learning-rates", "ft-learning-rates-cpu"),
        note="* as printed in the method's own paper. For NTL, WSR is its error rate on marked images.",
    ),
    Layout(
        name="adversarial-training", title="Adversarial training", sections=("adversarial-training",), summary=None,
        caption="Models trained against perturbed inputs, compared with APP; content mark, CIFAR-10.", axes=(METHOD,),
        grouped=False, presets=("adversarial-training", "adversarial-training-cpu"),
    ),
)  # fmt: skip
LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in _ALL}
"""Every table by name."""
MAIN = ("cifar10", "cifar100", "imagenet100")
"""The three main tables."""


def _tells_apart(layout: Layout, observations: Iterable[Observation]) -> bool:
    """Tell whether no two cells of a seed would fall into one place, and any has a place at all."""
    places = [
        (tuple(one.value(axis.field) for axis in layout.axes), one.column, one.seed)
        for one in observations
        if layout.admits(one)
    ]
    return len(set(places)) == len(places) > 0


def layout_for(results: Results) -> Layout:
    """Return the table that a preset fills; for one that the paper has not, the main layout on what was measured."""
    preset, seen = results.preset, results.observations
    known = next((layout for layout in _ALL if preset in layout.presets), None)
    if known is not None and _tells_apart(known, seen):
        return replace(known, name=preset, title=f"{known.title}: {preset}" if preset != known.name else known.title)
    datasets = sorted({one.dataset for one in seen})
    axes = [
        Axis(title=title, field=name)
        for title, name in (("Data", "dataset"), ("Network", "architecture"))
        if len({one.value(name) for one in seen}) > 1
    ]
    # A preset's own names of marks and attacks tell its rows and columns apart.
    axes.append(replace(KIND, field="mark"))
    own = results.attacks or sorted({one.column for one in seen if one.column is not None})
    others = [name for name in own if name not in PAPER_ATTACKS]
    conditions = (*_SIX, *(Condition(title=short_title(name), attack=name) for name in others))
    counted = tuple(one for one in conditions if one.attack in own)
    return Layout(
        # Part of file names and anchors: the path of a preset's file would be neither.
        name=re.sub(r"[^\w.-]+", "-", Path(preset).stem if preset.endswith(".toml") else preset).strip("-") or "preset",
        title=results.title or f"Preset {preset}", axes=(*axes, METHOD),
        caption=f"What the preset {preset} measured on {', '.join(map(title_of, datasets))}.",
        sections=tuple(name for name in datasets if name in SECTIONS), unmeasured=False, conditions=conditions,
        counted=counted, note="" if {*own} == {*PAPER_ATTACKS} else _over(counted),
    )  # fmt: skip


def _over(counted: Sequence[Condition]) -> str:
    return (
        f"AvgDrop is the mean over the preset's own attacks: {', '.join(one.title for one in counted)}."
        if counted
        else ""
    )
