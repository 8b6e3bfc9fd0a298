"""``indelible analyze``: the paper's figures, and some of our own, from runs; numbers and pictures."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.cli.options import assignments, emit

if TYPE_CHECKING:
    from indelible.analyze import Analysis, Subject
    from indelible.base.methods import Method

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "see why: figures of marked models, with the numbers behind them"
EXAMPLES = [
    "indelible analyze landscape runs/vanilla runs/app --out analysis/landscape",
    "indelible analyze landscape runs/app --set steps=41 --set tolerance=0.05",
    "indelible analyze batchnorm runs/vanilla runs/app --layer 9",
    "indelible analyze tsne runs/vanilla runs/app --path tuning --out analysis/tsne-tuning",
    "indelible analyze samples runs/app",
    "indelible analyze curves results.json --over eps",
    "indelible analyze curves runs/app-anp runs/vanilla-anp --over threshold",
    "indelible analyze frontier results/app-fast-cpu.json --attack ft",
    "indelible analyze dynamics runs/vanilla runs/app --attack ft --attack-set epochs=5",
    "indelible analyze draw analysis/landscape         # the figure again, from its numbers",
]
_FIGURES = {
    "landscape": "WSR and BA around a model, on the plane of the adversarial and the fine-tuning direction",
    "batchnorm": "BatchNorm statistics of clean against watermark samples",
    "tsne": "penultimate features of clean and watermark samples in two dimensions",
    "samples": "what the marks look like, in kinds, sizes and transparencies",
    "curves": "WSR and BA against what a benchmark varied",
    "frontier": "what variants of APP cost against what they keep after an attack",
    "dynamics": "WSR and BA while an attack goes on, and when the verdict stops holding",
}

_RECORDS = {"curves": "a benchmark's export (JSON), or runs", "frontier": "a benchmark's export (JSON)"}


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible analyze``."""
    from indelible.cli import common

    figures = command.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    made = {name: figures.add_parser(name, help=words, description=words) for name, words in _FIGURES.items()}
    for name, one in made.items():
        one.add_argument(
            "runs", type=Path, nargs="+", metavar="RECORDS" if name in _RECORDS else "RUN",
            help=_RECORDS.get(name, "folder of a run with its key at hand"),
        )  # fmt: skip
        one.add_argument("--out", type=Path, help=f"folder of the result (default: analysis/{name})")
        if name not in _RECORDS:
            one.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, see the docs")
            one.add_argument("--seed", type=int, help="decides images and fine-tuning (default: 0)")
        one.add_argument("--threads", type=int, help="CPU threads to compute with (default: torch's choice)")
        common(one)
    made["batchnorm"].add_argument("--layer", type=int, help="BatchNorm layer, from 1 (default: the 9th, or the last)")
    made["tsne"].add_argument("--path", help="still, adversarial or tuning (default: still)")
    made["curves"].add_argument("--over", required=True, help="eps, target, size, transparency, architecture, ...")
    made["curves"].add_argument("--attack", help="only records of this attack; none for models before any")
    made["curves"].add_argument("--kind", help="only records of this kind of mark: content, noise, ...")
    made["frontier"].add_argument("--attack", default="ft", help="WSR after this attack (default: ft)")
    made["frontier"].add_argument("--kind", help="only records of this kind of mark, or these: content,unrelated")
    made["dynamics"].add_argument("--attack", help="removal attack (default: ft)")
    made["dynamics"].add_argument(
        "--attack-set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the attack"
    )
    drawn = figures.add_parser("draw", help="draw figures again from their numbers")
    drawn.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="folder of an analysis")
    common(drawn)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.analyze import read_analysis
    from indelible.train.devices import pinned_threads

    if arguments.figure == "draw":
        written = [path for folder in arguments.folders for path in _draw(read_analysis(folder), folder)]
        emit(arguments, {"written": list(map(str, written))}, "\n".join(f"wrote {path}" for path in written))
        return 0
    out: Path = arguments.out or Path("analysis") / arguments.figure
    with pinned_threads(arguments.threads):
        result = _MAKERS[arguments.figure](arguments, out)
    return _finish(arguments, result, out)


def _finish(arguments: argparse.Namespace, result: "Analysis", out: Path) -> int:
    """Write the numbers, then the picture; without matplotlib the numbers are there all the same."""
    from indelible.analyze import write_analysis
    from indelible.report.svg import can_draw

    write_analysis(out, result)
    hint = "" if can_draw() else 'No figure was drawn: run pip install "indelible[plots]", then indelible analyze draw.'
    if can_draw():
        _draw(result, out)
    document = {"figure": result.figure, "folder": str(out), "sentences": result.sentences(), "drawn": can_draw()}
    emit(arguments, document, "\n".join([*result.sentences(), *([hint] if hint else []), f"kept in {out}"]))
    return 0


def _draw(result: "Analysis", folder: Path) -> list[Path]:
    from indelible.report.figures import write_figure

    return write_figure(result, folder)


def _subjects(runs: Sequence[Path]) -> "list[Subject]":
    """Read runs, each with a label of its own."""
    from indelible.analyze import Subject
    from indelible.report.names import method_title
    from indelible.train.run import Run

    found = [Run.load(folder) for folder in runs]
    names = [one.folder.name if one.record.verb == "attack" else method_title(one.record) for one in found]
    labels = [
        f"{name}, {one.folder.name}" if names.count(name) > 1 else name for name, one in zip(names, found, strict=True)
    ]
    return [Subject.from_run(one, label) for one, label in zip(found, labels, strict=True)]


def _settings(arguments: argparse.Namespace, kind: "type[Method]", **more: Any) -> Any:
    given = {**assignments(arguments.set), **{name: value for name, value in more.items() if value is not None}}
    if arguments.seed is not None:
        given["seed"] = arguments.seed
    return kind.of(given)


def _landscape(arguments: argparse.Namespace, out: Path) -> "Analysis":
    from indelible.analyze import LandscapeSettings, landscape

    return landscape(_subjects(arguments.runs), _settings(arguments, LandscapeSettings), out)


def _batchnorm(arguments: argparse.Namespace, _out: Path) -> "Analysis":
    from indelible.analyze import BatchNormSettings, batchnorm

    return batchnorm(_subjects(arguments.runs), _settings(arguments, BatchNormSettings, layer=arguments.layer))


def _tsne(arguments: argparse.Namespace, _out: Path) -> "Analysis":
    from indelible.analyze import TsneSettings, tsne

    return tsne(_subjects(arguments.runs), _settings(arguments, TsneSettings, path=arguments.path))


def _samples(arguments: argparse.Namespace, _out: Path) -> "Analysis":
    from indelible.analyze import SamplesSettings, samples
    from indelible.base.errors import InputError
    from indelible.train.run import Run

    if len(arguments.runs) != 1:
        raise InputError(f"samples are those of one run's key, but {len(arguments.runs)} runs came. Name one.")
    one = Run.load(arguments.runs[0])
    return samples(one.key(), one.images()[2], SamplesSettings.of(assignments(arguments.set)))


def _curves(arguments: argparse.Namespace, _out: Path) -> "Analysis":
    from indelible.analyze import cells_of, cells_of_runs, curves
    from indelible.report.collect import expand

    cells = [cell for path in arguments.runs if path.is_file() for cell in cells_of(path)]
    folders = [path for path in arguments.runs if not path.is_file()]
    cells += cells_of_runs(expand(folders)) if folders else []
    return curves(cells, arguments.over, attack=arguments.attack, kind=arguments.kind)


def _frontier(arguments: argparse.Namespace, _out: Path) -> "Analysis":
    from indelible.analyze import cells_of, frontier

    cells = [cell for path in arguments.runs for cell in cells_of(path)]
    kinds = arguments.kind.split(",") if arguments.kind else ()
    return frontier(cells, attack=arguments.attack, kinds=kinds)


def _dynamics(arguments: argparse.Namespace, out: Path) -> "Analysis":
    from indelible.analyze import DynamicsSettings, dynamics

    own = assignments(arguments.attack_set)
    settings = _settings(arguments, DynamicsSettings, attack=arguments.attack, settings=own or None)
    return dynamics(_subjects(arguments.runs), settings, out)


_MAKERS: Mapping[str, Callable[[argparse.Namespace, Path], "Analysis"]] = {
    "landscape": _landscape,
    "batchnorm": _batchnorm,
    "tsne": _tsne,
    "samples": _samples,
    "curves": _curves,
    "dynamics": _dynamics,
    "frontier": _frontier,
}
