"""A network from its name: one of the catalogue, or a user's own as ``"package.module:function"``."""

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import nn

from indelible.base.errors import InputError
from indelible.base.imports import import_named
from indelible.models.catalogue import MODEL_STEMS, MODELS, Shape, Stem

__all__ = ["build_model", "count_parameters", "stem_for"]

SMALLEST = 28
LARGE_FROM = 64


def build_model(
    name: str, *, classes: int, shape: Shape, seed: int | None = None, stem: Stem | None = None
) -> nn.Module:
    """Build a network, on the CPU, for ``classes`` classes and images of ``shape``.

    Args:
        name: A name of the catalogue (:data:`MODELS`), or ``"package.module:function"`` for your own. The function is
            called with ``classes=`` (or ``num_classes=``) and ``shape=`` where its signature accepts them.
        classes: Number of classes.
        shape: (C, H, W) of the images; networks of the catalogue take H and W from 28 up.
        seed: Makes the weights a function of the seed and leaves torch's global generator as it was.
            None draws from the global generator.
        stem: ``"small"`` or ``"large"``; None takes the small one for images with a side below 64 pixels.

    Raises:
        InputError: No such network, or one that cannot be built for this shape; the message says what to do.
    """
    shape = _checked(classes, shape)
    build = _own(name, classes, shape, stem) if ":" in name else _catalogued(name, classes, shape, stem)
    with torch.device("cpu"):
        if seed is None:
            return build()
        # Only the CPU generator is forked and seeded: torch.manual_seed would reseed every accelerator as well.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return build()


def stem_for(shape: Shape) -> Stem:
    """Return the stem that suits images of ``shape`` (C, H, W): small when a side is below 64 pixels."""
    return "small" if min(shape[1:]) < LARGE_FROM else "large"


def count_parameters(model: nn.Module | str, *, classes: int = 10, shape: Shape = (3, 32, 32)) -> int:
    """Count the trainable parameters of a network, or of one of the catalogue without allocating it."""
    if isinstance(model, str):
        with torch.device("meta"):
            model = _catalogued(model, classes, _checked(classes, shape), None)()
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _checked(classes: int, shape: Sequence[int]) -> Shape:
    try:
        channels, height, width = map(operator.index, shape)
    except (TypeError, ValueError) as error:
        raise InputError(f"shape must be three whole numbers (C, H, W), got {shape!r}.") from error
    try:
        enough = operator.index(classes) >= 2
    except TypeError as error:
        raise InputError(f"classes must be a whole number, got {classes!r}.") from error
    if not enough:
        raise InputError(f"a classifier needs at least 2 classes, got classes={classes}.")
    if min(channels, height, width) < 1:
        raise InputError(f"shape must be positive (C, H, W), got {shape!r}.")
    return channels, height, width


def _catalogued(name: str, classes: int, shape: Shape, stem: Stem | None) -> Callable[[], nn.Module]:
    info = MODELS[name]
    if min(shape[1:]) < SMALLEST:
        raise InputError(
            f"{name} takes images of at least {SMALLEST}x{SMALLEST} pixels, got {shape[1]}x{shape[2]}. "
            "Enlarge the images, or name your own network as 'package.module:function'."
        )
    chosen = stem_for(shape) if stem is None else stem
    if chosen not in info.stems:
        raise InputError(f"{name} has no stem {chosen!r}: choose one of {', '.join(info.stems)}.")
    return lambda: info.build(classes=classes, shape=shape, stem=chosen)


def _own(name: str, classes: int, shape: Shape, stem: Stem | None) -> Callable[[], nn.Module]:
    if stem is not None:
        raise InputError(
            f"stem={stem!r} chooses between {' and '.join(MODEL_STEMS)} of a catalogued network; {name!r} is your own."
        )
    function = _imported(name)
    settings = _accepted(name, function, {"classes": classes, "num_classes": classes, "shape": shape})

    def build() -> nn.Module:
        model = function(**settings)
        if not isinstance(model, nn.Module):
            raise InputError(f"{name} must return a torch.nn.Module, got {type(model).__name__}. Return the network.")
        return model

    return build


def _imported(name: str) -> Callable[..., Any]:
    function = import_named(name, expected="package.module:function")
    if not callable(function):
        raise InputError(f"{name!r} is of type {type(function).__name__}, not a function that builds a network.")
    return cast("Callable[..., Any]", function)


def _accepted(name: str, function: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Return those of the offered settings that the function's signature takes by name."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # compiled without a signature
        return {}
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    named = {key for key, parameter in signature.parameters.items() if parameter.kind in _BY_NAME}
    settings = {key: value for key, value in offered.items() if key in named}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        if "num_classes" not in named:
            settings["classes"] = offered["classes"]
        settings["shape"] = offered["shape"]
    try:
        signature.bind(**settings)
    except TypeError as error:
        raise InputError(
            f"{name} cannot be called with classes and shape only ({error}). Give its other arguments a default."
        ) from error
    return settings


_BY_NAME = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
