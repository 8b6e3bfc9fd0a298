"""Options that several commands share, and how their values are read."""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import indelible
from indelible.base.errors import InputError
from indelible.cli.known_names import add_choice, data_name

if TYPE_CHECKING:
    from torch import nn

    from indelible.data.images import Data, Shape
    from indelible.verification import Suspect

Work = Callable[[argparse.Namespace], None]


def assignments(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON where they can be, text otherwise."""
    read: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"expected a setting as name=value, got {pair!r}. Example: --set eps=0.02")
        try:
            read[name] = json.loads(text)
        except json.JSONDecodeError:
            read[name] = text
    return read


def explained(text: str, examples: Sequence[str]) -> dict[str, Any]:
    """Return what a parser shows as help: a sentence, and examples at the end."""
    lines = "\n".join(f"  {line}" for line in examples)
    shown = {"help": text, "description": text, "epilog": f"examples:\n{lines}"}
    return {**shown, "formatter_class": argparse.RawDescriptionHelpFormatter}


def common(*commands: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    for command in commands:
        command.add_argument("--json", action="store_true", help="print the result as one JSON document")
        command.add_argument("--quiet", action="store_true", help="show no progress")


def add_actions(
    command: argparse.ArgumentParser, **actions: tuple[Callable[[argparse.Namespace], int], str]
) -> dict[str, argparse.ArgumentParser]:
    """Add the actions of a command, each with the function that runs it and a line of help; return their parsers."""
    named = {name.replace("_", "-"): action for name, action in actions.items()}
    found = command.add_subparsers(dest="action", required=True, metavar="|".join(named))
    made = {name: found.add_parser(name, help=text) for name, (_, text) in named.items()}
    for name, (work, _) in named.items():
        made[name].set_defaults(run=work)
    return made


def accuracy_budget(command: argparse.ArgumentParser, text: str, **more: Any) -> None:
    """Add ``--ba-drop``: percentage points on the command line, a fraction in Python."""
    command.add_argument("--ba-drop", type=percentage_points, metavar="POINTS", help=f"{text} (default: 2)", **more)


def percentage_points(text: str) -> float:
    """Read the value of ``--ba-drop`` as a fraction."""
    if not 0 <= float(text) <= 100:
        raise argparse.ArgumentTypeError(f"accuracy is given in percentage points from 0 to 100, got {text}.")
    return float(text) / 100


def settings_option(command: argparse.ArgumentParser, option: str, what: str) -> None:
    """Add a repeatable option whose values :func:`assignments` reads."""
    command.add_argument(option, action="append", default=[], metavar="NAME=VALUE", help=f"{what}; repeatable")


def threads_option(command: argparse.ArgumentParser) -> None:
    """Add the number of threads."""
    command.add_argument("--threads", type=int, help="number of CPU threads (default: chosen by torch)")


def computing(command: argparse.ArgumentParser) -> None:
    """Add seed, device, threads, and the number of processes and machines."""
    add = command.add_argument
    add("--seed", type=int, default=0, help="random seed; the same seed gives the same result (default: 0)")
    add("--device", default="auto", help="device: auto, cpu, cuda, cuda:1 or mps (default: auto)")
    threads_option(command)
    started = "processes to start, one per device (default: 1, or as torchrun started)"
    add("--devices", type=int, metavar="N", help=started)
    add("--nodes", type=int, metavar="N", help="number of machines on which you start this command")


def in_processes(work: Work, arguments: argparse.Namespace) -> int:
    """Do ``work(arguments)`` in as many processes as the options ask for."""
    from indelible.train.processes import must_start, spread

    if must_start(arguments.devices, arguments.nodes):
        with tempfile.TemporaryDirectory(prefix="indelible-") as name:
            devices, nodes = arguments.devices or 1, arguments.nodes or 1
            spread(partial(_inside, work, arguments), devices=devices, nodes=nodes, folder=Path(name))
    else:
        _inside(work, arguments)
    return 0


def _inside(work: Work, arguments: argparse.Namespace, _folder: Path | None = None) -> None:
    from indelible.train.processes import joined

    with joined(devices=arguments.devices, nodes=arguments.nodes, device=arguments.device):
        work(arguments)


def key_options(command: argparse.ArgumentParser) -> None:
    """Add the settings of a new key."""
    add = command.add_argument
    add_choice(
        command, "--kind", "kind of mark", group="marks", default="content",
        help="kind of mark: content (a text), noise (a pattern), unrelated (other images), or plain (no mark, keyed "
        "labels only) (default: content)",
    )  # fmt: skip
    add("--marks", type=int, metavar="K", help="number of marks in a codebook (default: 16; with two classes: 32)")
    add("--target", type=int, metavar="CLASS", help="use one mark with this class, as in the paper, and no codebook")
    add_choice(
        command, "--labels", "kind of label",
        help="codebook: several marks, each with a secret class (default); fixed: one target class; keyed: a "
        "pseudo-random class for each sample; untargeted: any wrong class",
    )  # fmt: skip
    count = "samples to embed (default: a share of the images; keyed labels: 100)"
    add("--count", type=int, metavar="N", help=count)
    literal = "the paper's marks and class 0, which are public: anybody could claim them"
    add("--paper-literal", action="store_true", help=literal)
    add("--size", type=float, default=1.0, help="relative size of a content mark (default: 1)")
    clear = "transparency of a content mark, 0 to 1 (default: 0, opaque)"
    add("--transparency", type=float, default=0.0, help=clear)
    add("--strength", type=float, default=0.1, help="strength of a noise mark (default: 0.1)")
    source = "data set to take unrelated marks from (default: generated images)"
    add("--source", type=data_name, metavar="NAME|PATH", help=source)
    add("--source-class", type=int, help="use only this class of --source")


def emit(arguments: argparse.Namespace, document: Any, text: str, *tables: Any, ok: bool = True) -> int:
    """Print the result, JSON for machines or tables and text for people; return the exit code, 0 if all is ``ok``."""
    if tables and not arguments.json:
        from rich.console import Console

        Console().print(*tables, sep="\n")
    print(json.dumps(document, indent=2, allow_nan=False) if arguments.json else text)
    return 0 if ok else 1


def content_of(path: Path) -> bytes:
    """Return the bytes of a file that an option names."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}). Check the path.") from error


def make_key(
    arguments: argparse.Namespace, classes: int, shape: "Shape", carriers: "Data | None" = None
) -> "indelible.Key":
    """Make the key that the options describe, with the classes of a codebook bound to ``carriers``."""
    source = None if arguments.source is None else indelible.load(arguments.source)[0]
    book = arguments.labels in {None, "codebook"} and arguments.target is None and not arguments.paper_literal
    bind = book and arguments.kind not in {"unrelated", "plain"}
    same = ("kind", "target", "labels", "marks", "count", "size", "transparency", "strength", "source_class")
    return indelible.Key.create(
        classes=classes, shape=shape, carriers=carriers if bind else None, source=source,
        scheme="paper" if arguments.paper_literal else "derived", **{name: getattr(arguments, name) for name in same},
    )  # fmt: skip


def owners(arguments: argparse.Namespace) -> "tuple[indelible.Run, indelible.Key, Data]":
    """Return the owner's run, its key, and the carriers of the samples."""
    saved = indelible.Run.load(arguments.run_folder)
    key = saved.key()
    if key.labels == "keyed":  # the model has memorised the embedded samples, so these are what it is asked
        return saved, key, saved.images()[0]
    return saved, key, indelible.load(arguments.data or saved.data)[1]


def asking_options(
    command: argparse.ArgumentParser, *, unless: str | None, model: str = "the run's", log: bool = True,
    budget: bool = True,
) -> None:  # fmt: skip
    """Add what names a suspect outside of a run and says how to ask it.

    ``unless`` says what happens without ``--suspect``, None that it is required; ``model`` what the architecture of a
    file of weights is without ``--model``.
    """
    add = command.add_argument
    add(
        "--suspect", metavar="PLACE", required=unless is None,
        help="suspect to ask: http(s)://HOST/v2/models/NAME, a template .json, .onnx, .safetensors, .pt, .pth, "
        f"the folder of a run, or predictions .csv, .jsonl ({'required' if unless is None else f'default: {unless}'})",
    )  # fmt: skip
    add("--model", help=f"architecture of a file of weights (default: {model})")
    add(
        "--input", action="append", default=[], metavar="NAME=VALUE",
        help="input that an ONNX model or a server expects: dtype=uint8 (pixels) or dtype=float32 (0..1), white=255, "
        "mean=[..], std=[..], layout=NHWC, order=BGR, size=[H,W]; repeatable",
    )  # fmt: skip
    named = "name of a server's input (default: the only one that it declares, or input-0 if it declares none)"
    add("--input-name", metavar="NAME", help=named)
    add("--output", help="name of the output with labels or scores, if there are several")
    add("--batch", type=int, help="images per request (default: 32)")
    if log:
        kept = "query log: an interrupted session continues from it, and anyone can check it"
        add("--log", type=Path, help=kept)
    if budget:
        needs = " (needs --log)" if log else ""
        add("--budget", type=int, help=f"maximum number of images to send, retries included{needs}")
    add("--rate", type=float, help="maximum number of images per second")
    add("--timeout", type=float, default=30.0, help="seconds to wait for a reply (default: 30)")
    add("--tries", type=int, default=5, help="attempts per request (default: 5)")
    header = "send a header whose value is in an environment variable, such as Authorization=TOKEN; repeatable"
    add("--header", action="append", default=[], metavar="NAME=VARIABLE", help=header)


def asked_suspect(
    arguments: argparse.Namespace, classes: int, shape: "Shape", run: "indelible.Run | None"
) -> "Suspect":  # fmt: skip
    """Open the suspect that the options name, for a key of ``classes`` and ``shape``."""
    from indelible.verification.suspects import Persistence, open_suspect

    normalize = None
    model: Callable[[], nn.Module] | None = None
    if arguments.model is not None:
        model = partial(indelible.build_model, arguments.model, classes=classes, shape=shape)
    elif run is not None:
        model, normalize = run.architecture.build, run.normalize()
    return open_suspect(
        arguments.suspect, classes=classes, input=assignments(arguments.input), model=model, normalize=normalize,
        input_name=arguments.input_name, output=arguments.output, shape=shape, batch=arguments.batch,
        headers=_headers(arguments.header),
        persistence=Persistence(timeout=arguments.timeout, tries=arguments.tries, rate=arguments.rate),
    )  # fmt: skip


def _headers(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, variable = pair.partition("=")
        value = os.environ.get(variable)
        if not name or not equals or value is None:
            raise InputError(
                f"a header is written NAME=VARIABLE with an environment variable that is set, got {pair!r}. "
                "A secret on the command line would be seen by others."
            )
        found[name] = value
    return found
