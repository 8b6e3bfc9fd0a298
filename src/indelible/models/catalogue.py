"""Networks by name: one of the catalogue, or a user's own as ``"package.module:function"``.

A family file builds its networks and adds one :class:`ModelInfo` for each to :data:`MODELS`. Every network has two
stems: ``"small"`` keeps the resolution of 32x32 images, ``"large"`` is the ImageNet one.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from indelible.base.checks import check_image_shape, whole_number
from indelible.base.errors import InputError
from indelible.base.imports import import_named
from indelible.base.registry import Registry

Stem = Literal["small", "large"]
Shape = tuple[int, int, int]

_STEMS: tuple[Stem, Stem] = ("small", "large")
_SMALLEST = 28
_LARGE_FROM = 64


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Description of a network, for choosing one."""

    name: str  # on the command line
    title: str
    paper: str
    build: Callable[..., nn.Module]  # takes classes, shape (C, H, W) and stem, by name


MODELS: Registry[ModelInfo] = Registry("model")


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
    shape = check_image_shape(shape)
    if whole_number(classes, "classes") < 2:
        raise InputError(f"a classifier needs at least 2 classes, got classes={classes}.")
    build = _own(name, classes, shape, stem) if ":" in name else _catalogued(name, classes, shape, stem)
    # Only the CPU generator is forked and seeded: torch.manual_seed would reseed every accelerator as well.
    with torch.device("cpu"), torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        return build()


def stem_for(shape: Shape) -> Stem:
    """Return the stem that suits images of ``shape`` (C, H, W): small when a side is below 64 pixels."""
    return "small" if min(shape[1:]) < _LARGE_FROM else "large"


def _catalogued(name: str, classes: int, shape: Shape, stem: Stem | None) -> Callable[[], nn.Module]:
    info = MODELS[name]
    if min(shape[1:]) < _SMALLEST:
        raise InputError(
            f"{name} takes images of at least {_SMALLEST}x{_SMALLEST} pixels, got {shape[1]}x{shape[2]}. "
            "Enlarge the images, or name your own network as 'package.module:function'."
        )
    chosen = stem_for(shape) if stem is None else stem
    if chosen not in _STEMS:
        raise InputError(f"{name} has no stem {chosen!r}: choose one of {', '.join(_STEMS)}.")
    return lambda: info.build(classes=classes, shape=shape, stem=chosen)


def _own(name: str, classes: int, shape: Shape, stem: Stem | None) -> Callable[[], nn.Module]:
    if stem is not None:
        raise InputError(
            f"stem={stem!r} chooses between {' and '.join(_STEMS)} of a catalogued network; {name!r} is your own."
        )
    function = import_named(name, expected="package.module:function")
    if not callable(function):
        raise InputError(f"{name!r} is of type {type(function).__name__}, not a function that builds a network.")
    settings = _accepted(name, function, {"classes": classes, "num_classes": classes, "shape": shape})

    def build() -> nn.Module:
        model = function(**settings)
        if not isinstance(model, nn.Module):
            raise InputError(f"{name} must return a torch.nn.Module, got {type(model).__name__}. Return the network.")
        return model

    return build


def _accepted(name: str, function: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Return those of the offered settings that the function's signature takes by name."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # compiled without a signature
        return {}
    kinds = {key: parameter.kind for key, parameter in signature.parameters.items()}
    by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    settings = {key: value for key, value in offered.items() if kinds.get(key) in by_name}
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        settings["shape"] = offered["shape"]
        if "num_classes" not in settings:
            settings["classes"] = offered["classes"]
    try:
        signature.bind(**settings)
    except TypeError as error:
        raise InputError(
            f"{name} cannot be called with classes and shape only ({error}). Give its other arguments a default."
        ) from error
    return settings


def init_published(model: nn.Module, *, linear_std: float | None = None) -> None:
    """Initialise in place as published: He normal by fan-out for convolutions, biases zero; BatchNorm as torch does.

    ``linear_std`` is the standard deviation of the linear layers' weights, with biases zero; None leaves torch's own.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear) and linear_std is not None:
            nn.init.normal_(module.weight, 0.0, linear_std)
            nn.init.zeros_(module.bias)
