"""``indelible analyze``: the paper's figures, and some of our own, from runs; numbers and pictures."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import indelible
from indelible.base.errors import InputError
from indelible.cli.options import assignments, common, emit, settings_option, threads_option

if TYPE_CHECKING:
    from indelible.analyze import Analysis, MarkedModel
    from indelible.base.methods import Method

HELP = "draw figures of marked models, with the numbers behind them"
EXAMPLES = [
    "indelible analyze landscape runs/vanilla runs/app --out analysis/landscape",
    "indelible analyze landscape runs/app --set steps=41 --set tolerance=0.05",
    "indelible analyze batchnorm runs/vanilla runs/app --layer 9",
    "indelible analyze tsne runs/vanilla runs/app --path tuning --out analysis/tsne-tuning",
    "indelible analyze samples runs/app",
    "indelible analyze curves results.json --over eps",
    "indelible analyze curves runs/app-anp runs/vanilla-anp --over threshold",
    "indelible analyze dynamics runs/vanilla runs/app --attack ft --attack-set epochs=5",
    "indelible analyze draw analysis/landscape         # the figure again, from its numbers",
]
_FIGURES = {
    "landscape": "watermark success (WSR) and accuracy (BA) around a model, in two directions of its weights",
    "batchnorm": "BatchNorm statistics of clean against watermark samples",
    "tsne": "penultimate features of clean and watermark samples in two dimensions",
    "samples": "what the marks look like, in kinds, sizes and transparencies",
    "curves": "WSR and BA against a setting that a benchmark varied",
    "dynamics": "WSR and BA during an attack, and when the verdict stops holding",
}


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible analyze``."""
    figures = command.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    made = {name: figures.add_parser(name, help=words, description=words) for name, words in _FIGURES.items()}
    for name, one in made.items():
        of_runs = name != "curves"
        what = "folder of a run whose key is available" if of_runs else "a benchmark's export (JSON), or runs"
        one.add_argument("runs", type=Path, nargs="+", metavar="RUN" if of_runs else "RECORDS", help=what)
        one.add_argument("--out", type=Path, help=f"folder of the result (default: analysis/{name})")
        if of_runs:
            settings_option(one, "--set", "change a setting")
            one.add_argument("--seed", type=int, help="random seed of images and fine-tuning (default: 0)")
        threads_option(one)
        common(one)
    made["batchnorm"].add_argument("--layer", type=int, help="BatchNorm layer, from 1 (default: the 9th, or the last)")
    made["tsne"].add_argument("--path", help="still, adversarial or tuning (default: still)")
    made["curves"].add_argument("--over", required=True, help="eps, target, size, transparency, architecture, ...")
    made["curves"].add_argument("--attack", help="only records of this attack; none: models before any attack")
    made["curves"].add_argument("--kind", help="only records of this kind of mark: content, noise, ...")
    made["dynamics"].add_argument("--attack", help="removal attack (default: ft)")
    settings_option(made["dynamics"], "--attack-set", "change a setting of the attack")
    drawn = figures.add_parser("draw", help="draw figures again from their numbers")
    drawn.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="folder of an analysis")
    common(drawn)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.analyze import read_analysis, write_analysis
    from indelible.report.drawing import can_draw
    from indelible.report.figures import write_figure
    from indelible.train.devices import pinned_threads

    if arguments.figure == "draw":
        written = [path for folder in arguments.folders for path in write_figure(read_analysis(folder), folder)]
        return emit(arguments, {"written": list(map(str, written))}, "\n".join(f"wrote {path}" for path in written))
    out: Path = arguments.out or Path("analysis") / arguments.figure
    makers = {"samples": _samples, "curves": _curves}
    with pinned_threads(arguments.threads):
        result = makers.get(arguments.figure, _of_models)(arguments, out)
    write_analysis(out, result)  # the numbers first: without matplotlib they are there all the same
    lines, drawn = result.sentences(), can_draw()
    document = {"figure": result.figure, "folder": str(out), "sentences": lines, "drawn": drawn}
    if drawn:
        write_figure(result, out)
    else:
        hint = 'No figure was drawn: run pip install "indelible[plots]", then indelible analyze draw.'
        lines = [*lines, hint]
    return emit(arguments, document, "\n".join([*lines, f"kept in {out}"]))


def _marked_models(runs: Sequence[Path]) -> "list[MarkedModel]":
    """Read runs, each with a label of its own."""
    from indelible.analyze import MarkedModel
    from indelible.report.model_stages import method_title

    found = [indelible.Run.load(folder) for folder in runs]
    names = [one.folder.name if one.record.verb == "attack" else method_title(one.record) for one in found]
    labels = [
        f"{name}, {one.folder.name}" if names.count(name) > 1 else name for name, one in zip(names, found, strict=True)
    ]
    return [MarkedModel.from_run(one, label) for one, label in zip(found, labels, strict=True)]


def _of_models(arguments: argparse.Namespace, out: Path) -> "Analysis":
    """Make a figure of marked models; what takes long keeps its measurements in ``out``."""
    from indelible import analyze

    figures: dict[str, tuple[type[Method], Callable[..., Analysis]]] = {
        "landscape": (analyze.LandscapeSettings, partial(analyze.landscape, folder=out)),
        "batchnorm": (analyze.BatchNormSettings, analyze.batchnorm),
        "tsne": (analyze.TsneSettings, analyze.tsne),
        "dynamics": (analyze.DynamicsSettings, partial(analyze.dynamics, folder=out)),
    }
    settings, make = figures[arguments.figure]
    given = assignments(arguments.set)
    own = {name: getattr(arguments, name, None) for name in ("seed", "layer", "path", "attack")}
    own["settings"] = assignments(getattr(arguments, "attack_set", [])) or None
    chosen = settings.of({**given, **{name: value for name, value in own.items() if value is not None}})
    return make(_marked_models(arguments.runs), chosen)


def _samples(arguments: argparse.Namespace, _out: Path) -> "Analysis":
    from indelible.analyze import SamplesSettings, samples

    if len(arguments.runs) != 1:
        raise InputError(f"`indelible analyze samples` takes one run, got {len(arguments.runs)}.")
    one = indelible.Run.load(arguments.runs[0])
    return samples(one.key(), one.images()[2], SamplesSettings.of(assignments(arguments.set)))


def _curves(arguments: argparse.Namespace, _out: Path) -> "Analysis":
    from indelible.analyze import curves, read_measurements

    found = read_measurements(arguments.runs)
    return curves(found, arguments.over, attack=arguments.attack, kind=arguments.kind)
