"""Draw what protection costs against what it proves: points of BA lost against the worst p-value after any attack.

From the committed records of the presets ``price-cpu`` and ``proof-cpu``, and of ``experiments/trained_start.py``:
CIFAR-10, content codebooks, the paper's six attacks. A spot is a method's or a recipe's mean over its seeds, a bar goes
from the lowest to the highest seed. BA lost is against the same training without a mark, on the same seed. The worst p
of a seed is the largest over the verdict before and after each attack; p-values are averaged by their logarithms.

Run it: python experiments/draw_price.py --out docs/images/price.png
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from indelible.report.drawing import BOTH, Drawing, Ink, as_png
from indelible.report.page_look import slot_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
ATTACKS = (None, "ft", "fp", "anp", "nad", "mcr", "nnl")
NAMES = {
    "app": "APP (balanced, the default)", "balanced": "APP (balanced, the default)", "light": "APP light (eps 0)",
    "strong": "APP strong", "control": "control: APP with eps 0", "vanilla": "Vanilla",
}  # fmt: skip
AFTERWARDS = "APP on a trained model (30 epochs)"
LEVEL = 1e-6
Cell = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Spot:
    """One method: for each seed, points of BA lost and log10 of the worst p-value."""

    name: str
    lost: tuple[float, ...]
    worst: tuple[float, ...]

    @property
    def seeds(self) -> str:
        """How many seeds, in words."""
        return "1 seed" if len(self.lost) == 1 else f"{len(self.lost)} seeds"


def spots_of(cells: Sequence[Cell]) -> list[Spot]:
    """Return a spot for each method with content marks, of the seeds that have all attacks and an unmarked model."""
    cells = [cell for cell in cells if cell["measured"] and cell["kind"] == "content"]
    plain = {cell["seed"]: cell["measured"]["ba"] for cell in cells if cell["method"] == "unmarked"}
    found: dict[str, dict[int, dict[str | None, Mapping[str, Any]]]] = {}
    for cell in cells:
        if cell["method"] in NAMES and cell["seed"] in plain:
            seeds = found.setdefault(NAMES[cell["method"]], {})
            seeds.setdefault(cell["seed"], {})[cell["attack"]] = cell["measured"]
    made = []
    for name, seeds in found.items():
        whole = {seed: stages for seed, stages in seeds.items() if stages.keys() >= set(ATTACKS)}
        if whole:
            made.append(
                Spot(
                    name=name,
                    lost=tuple(100 * (plain[seed] - stages[None]["ba"]) for seed, stages in whole.items()),
                    worst=tuple(
                        math.log10(max(stages[attack]["p_value"] for attack in ATTACKS)) for stages in whole.values()
                    ),
                )
            )
    return made


def spot_afterwards(rows: Sequence[Mapping[str, Any]]) -> Spot:
    """Return the spot of marks that were put into trained models by default: ``experiments/trained_start.py``."""
    own = [row for row in rows if row["trial"] == "default"]
    stages = [
        {row["attack"]: row for row in own if row["seed"] == seed} for seed in dict.fromkeys(row["seed"] for row in own)
    ]
    whole = [found for found in stages if found.keys() >= set(ATTACKS)]
    return Spot(
        name=AFTERWARDS,
        lost=tuple(100 * (found[None]["ba_before"] - found[None]["ba"]) for found in whole),
        worst=tuple(math.log10(max(found[attack]["p_value"] for attack in ATTACKS)) for found in whole),
    )


def drawing(spots: Sequence[Spot]) -> Drawing:
    """Return the picture."""
    alt = "Points of BA lost against the worst p-value after the six attacks. " + " ".join(
        f"{spot.name}: {fmean(spot.lost):.1f} points, p = {10 ** fmean(spot.worst):.0e} ({spot.seeds})."
        for spot in spots
    )

    def plot(figure: "Figure", ink: Ink) -> None:
        axes = figure.subplots()
        axes.axhspan(math.log10(LEVEL), 1, color=ink["line"], alpha=0.5, linewidth=0)
        for number, spot in enumerate(spots):
            slot, x, y = slot_of(number), fmean(spot.lost), fmean(spot.worst)
            axes.errorbar(
                x, y, xerr=[[x - min(spot.lost)], [max(spot.lost) - x]],
                yerr=[[y - min(spot.worst)], [max(spot.worst) - y]], color=ink[slot.name], marker=slot.marker,
                markersize=5, linewidth=1, capsize=2, linestyle="none",
                label=f"{spot.name} ({spot.seeds})",
            )  # fmt: skip
        axes.set_ylim(1, -17)  # the better, the higher
        axes.set_yticks([0, -3, -6, -9, -12, -15], ["1", "1e-3", "1e-6", "1e-9", "1e-12", "1e-15"])
        axes.set_xlabel("points of BA lost against the same training without a mark")
        axes.set_ylabel("worst p over six attacks")
        axes.text(
            0.99, math.log10(LEVEL) + 0.6, "NOT SHOWN", transform=axes.get_yaxis_transform(), ha="right", va="top"
        )
        axes.grid(visible=True, axis="both")
        axes.set_axisbelow(True)
        axes.margins(x=0.15)
        figure.legend(loc="outside right upper", frameon=False)

    return Drawing(BOTH, 75, plot, alt)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the picture, and print what it shows."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "price.png")
    arguments = options.parse_args(argv)
    cells: list[Cell] = []
    for name in ("proof-cpu", "price-cpu"):
        path = ROOT / "results" / f"{name}.json"
        if path.exists():
            cells += json.loads(path.read_text(encoding="utf-8"))["cells"]
    trained = json.loads((ROOT / "results" / "trained-start.json").read_text(encoding="utf-8"))
    picture = drawing([*spots_of(cells), spot_afterwards(trained)])
    arguments.out.write_bytes(as_png(picture))
    print(picture.alt)


if __name__ == "__main__":
    main()
