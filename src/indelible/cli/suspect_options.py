"""Options that name a suspect and say how to ask it; shared by ``verify`` and ``evidence``."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from indelible.base.errors import InputError
from indelible.cli.options import assignments

if TYPE_CHECKING:
    from torch import nn

    from indelible.data.augment import Normalization
    from indelible.data.images import Shape
    from indelible.train.run_folder import Run
    from indelible.verification.suspects.suspect import Suspect


def asking_options(
    command: argparse.ArgumentParser, *, unless: str | None, model: str = "the run's", log: bool = True,
    budget: bool = True,
) -> None:  # fmt: skip
    """Add what a suspect outside of a run needs.

    ``unless`` says what happens without ``--suspect``, None that it is required; ``model`` what the architecture of a
    file of weights is without ``--model``.
    """
    command.add_argument(
        "--suspect", metavar="PLACE", required=unless is None,
        help="suspect to ask: http(s)://HOST/v2/models/NAME, a template .json, .onnx, .safetensors, .pt, .pth, "
        f"the folder of a run, or predictions .csv, .jsonl ({'required' if unless is None else f'default: {unless}'})",
    )  # fmt: skip
    command.add_argument("--model", help=f"architecture of a file of weights (default: {model})")
    command.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE",
        help="input that an ONNX model or a server expects: dtype=uint8 (pixels) or dtype=float32 (0..1), white=255, "
        "mean=[..], std=[..], layout=NHWC, order=BGR, size=[H,W]; repeatable",
    )  # fmt: skip
    command.add_argument(
        "--input-name", metavar="NAME",
        help="name of a server's input (default: the only one that it declares, or input-0 if it declares none)",
    )  # fmt: skip
    command.add_argument("--output", help="name of the output with labels or scores, if there are several")
    command.add_argument("--batch", type=int, help="images per request (default: 32)")
    if log:
        command.add_argument(
            "--log", type=Path, help="query log: an interrupted session continues from it, and anyone can check it"
        )
    if budget:
        needs = " (needs --log)" if log else ""
        command.add_argument("--budget", type=int, help=f"maximum number of images to send, retries included{needs}")
    command.add_argument("--rate", type=float, help="maximum number of images per second")
    command.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for a reply (default: 30)")
    command.add_argument("--tries", type=int, default=5, help="attempts per request (default: 5)")
    command.add_argument(
        "--header", action="append", default=[], metavar="NAME=VARIABLE",
        help="send a header whose value is in an environment variable, such as Authorization=TOKEN; repeatable",
    )  # fmt: skip


def asked_suspect(
    arguments: argparse.Namespace, classes: int, shape: "Shape", run: "Run | None"
) -> "Suspect":  # fmt: skip
    """Open the suspect that the options name, for a key of ``classes`` and ``shape``."""
    from indelible.verification.suspects import Persistence, open_suspect

    return open_suspect(
        arguments.suspect, classes=classes, input=assignments(arguments.input),
        model=_architecture(arguments.model, classes, shape, run), normalize=_normalisation(arguments.model, run),
        input_name=arguments.input_name, output=arguments.output, shape=shape, batch=arguments.batch,
        headers=_headers(arguments.header),
        persistence=Persistence(timeout=arguments.timeout, tries=arguments.tries, rate=arguments.rate),
    )  # fmt: skip


def _architecture(
    name: str | None, classes: int, shape: "Shape", run: "Run | None"
) -> "Callable[[], nn.Module] | None":  # fmt: skip
    if name is not None:
        from indelible.models import build_model

        return lambda: build_model(name, classes=classes, shape=shape)
    return None if run is None else run.architecture.build


def _normalisation(name: str | None, run: "Run | None") -> "Normalization | None":
    return None if name is not None or run is None else run.normalize()


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
