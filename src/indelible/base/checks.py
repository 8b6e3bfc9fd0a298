"""Check what a user gives, and name what is wrong, before anything is computed with it.

Every message says what was expected, what was given, and what to do.
"""

import math
import operator
import re
import types
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.registry import MethodRegistry

_COLOURS = {1, 3}
_HASH = re.compile(r"[0-9a-f]{64}")


def setting_names(kind: type[Any]) -> list[str]:
    """Return the names of a dataclass's settings (class variables are none)."""
    return [field.name for field in fields(kind)]


def check_settings(kind: type[Any], values: Mapping[str, Any], what: str) -> None:
    """Refuse settings that the dataclass ``kind`` does not have, or whose type is wrong; errors call them ``what``."""
    names = setting_names(kind)
    hints = get_type_hints(kind)
    for name, value in values.items():
        if name not in names:
            raise UnknownNameError(what, name, names)
        if not _fits(value, hints[name]):
            raise InputError(f"the {what} {name!r} must be {_describe(hints[name])}, got {value!r}.")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any:
        fits = True
    elif origin in {Union, types.UnionType}:
        fits = any(_fits(value, part) for part in get_args(hint))
    elif origin is Literal:
        fits = isinstance(value, str)  # `check_words` lists the choices
    elif hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    elif hint is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif origin is tuple:
        parts = get_args(hint)
        if isinstance(value, tuple | list) and parts[-1] is Ellipsis:
            parts = (parts[0],) * len(value)
        fits = isinstance(value, tuple | list) and len(value) == len(parts) and all(map(_fits, value, parts))
    else:
        fits = isinstance(value, origin or hint)
    return fits


def _describe(hint: Any) -> str:
    words = {float: "a finite number", int: "a whole number", bool: "true or false", str: "text", type(None): "null"}
    if hint in words:
        return words[hint]
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        return " or ".join(_describe(part) for part in get_args(hint))
    if origin is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    return "a list of numbers" if origin is tuple else f"a {getattr(hint, '__name__', hint)}"


def check_finite_settings(value: Any) -> None:
    """Refuse a dataclass value with NaN or infinity among its settings."""
    for name in setting_names(type(value)):
        given = getattr(value, name)
        if isinstance(given, float) and not math.isfinite(given):
            raise InputError(f"the setting {name!r} of {type(value).__name__} must be a finite number, got {given}.")


def check_words(value: Any, what: str = "") -> None:
    """Refuse a dataclass value with a setting that is none of the words of its ``Literal``; ``what`` goes before it."""
    for name, hint in get_type_hints(type(value)).items():
        if get_origin(hint) is Literal and getattr(value, name) not in get_args(hint):
            raise UnknownNameError(f"{what}{name}", str(getattr(value, name)), get_args(hint))


def check_ranges(value: Any, ranges: Mapping[str, str]) -> None:
    """Refuse a dataclass value with a setting outside its interval, such as ``"[0, 1)"``; None is in every interval."""
    for name, interval in ranges.items():
        check_interval(name, getattr(value, name), interval, type(value).__dataclass_fields__[name].default)


def check_interval(name: str, given: Any, interval: str, default: Any) -> None:
    """Refuse a number outside its interval; None is in every interval."""
    low, high = map(float, interval[1:-1].split(","))
    above = given is None or (given >= low if interval[0] == "[" else given > low)
    below = given is None or (given <= high if interval[-1] == "]" else given < high)
    if not (above and below):
        least = f"be {'at least' if interval[0] == '[' else 'greater than'} {low:g}"
        raise InputError(
            f"{name} must {least if high == math.inf else f'lie in {interval}'}, got {given:g}. "
            f"{'Leave it out.' if default is None else f'The default is {default}.'}"
        )


def check_like(values: Mapping[str, Any], defaults: Mapping[str, Any], ranges: Mapping[str, str]) -> None:
    """Refuse what is no number or truth value as its default is, or lies outside its interval; integers are lenient."""
    for name in values.keys() & defaults.keys():
        value, kind = values[name], type(defaults[name])
        if kind in {bool, float} and value is not None and not _fits(value, kind):
            raise InputError(f"the setting {name!r} must be {_describe(kind)}, got {value!r}.")
        if name in ranges and _fits(value, float):
            check_interval(name, value, ranges[name], defaults[name])


def is_hash(value: Any) -> bool:
    """Tell whether a value is a SHA-256: 64 hexadecimal digits in lower case."""
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def whole_number(value: Any, what: str) -> int:
    """Return a whole number, numpy's included; refuse anything else, 5.0 and True too, under the name ``what``."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"{what} must be a whole number, got {_shown(value)}. Example: {what}=5.") from error


def check_image_shape(shape: Any) -> tuple[int, int, int]:
    """Return (C, H, W) as three whole numbers; refuse any other shape, (H, W, C) by its name."""
    given = f"{shape!s:.80}"
    try:
        sizes = tuple(whole_number(size, "a size") for size in shape)
    except (TypeError, InputError) as error:
        raise InputError(
            f"a shape is three whole numbers (channels, height, width), got {given}. Example: shape=(3, 32, 32)."
        ) from error
    if len(sizes) != 3 or min(sizes) < 1:
        raise InputError(f"a shape is (channels, height, width), each at least 1, got {given}.")
    channels, height, width = sizes
    if channels not in _COLOURS and width in _COLOURS:  # as data that come this way are turned
        raise InputError(
            f"a shape is (channels, height, width), got {given}, which reads as (height, width, channels). "
            f"Give ({width}, {channels}, {height})."
        )
    return channels, height, width


def key_numbers(
    *, classes: Any, shape: Any, target: Any = None, count: Any = None
) -> tuple[int, tuple[int, int, int], int | None, int | None]:  # fmt: skip
    """Return what a key is counted by as Python's own numbers: classes, shape, target, count."""
    return (
        whole_number(classes, "classes"),
        check_image_shape(shape),
        None if target is None else whole_number(target, "target"),
        None if count is None else whole_number(count, "count"),
    )


def check_key_numbers(key: Any) -> None:
    """Refuse a key whose numbers are none."""
    key_numbers(classes=key.classes, shape=key.shape, target=key.target, count=key.count)
    for name in ("size", "transparency", "strength"):
        if not _fits(getattr(key, name), float):
            raise InputError(f"{name} must be a finite number, got {_shown(getattr(key, name))}.")


def check_is_key(key: Any, kind: type[Any]) -> None:
    """Refuse what is not a key (of the class ``kind``); for a path, say how to load it."""
    if isinstance(key, kind):
        return
    if isinstance(key, str | Path):
        raise InputError(f"key must be a Key, got the path {str(key)!r}. Load it: indelible.Key.load({str(key)!r}).")
    raise InputError(
        f"key must be a Key, got {_shown(key)}. Make one with indelible.Key.create(...), or load it with "
        "indelible.Key.load(folder)."
    )


def check_module(model: Any, what: str = "the model") -> None:
    """Refuse what is not a torch module, or has no weights yet, and say what to give instead."""
    from torch import nn  # here, since the command line checks settings without torch

    if not isinstance(model, nn.Module):
        raise InputError(f"{what} must be a torch.nn.Module, got {_not_a_module(model)}")
    if any(nn.parameter.is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        raise InputError(
            f"{what} has lazy layers without weights. Pass a batch through it first: model(torch.zeros(1, C, H, W))."
        )


def check_recipe(recipe: str | None, method: type[Any], registry: MethodRegistry) -> None:
    """Refuse a recipe that a method's class does not have, and name the methods that do."""
    if recipe is None or recipe in method.recipes:
        return
    having = [info.name for info in registry.entries() if recipe in info.build.recipes]
    if not having:
        raise UnknownNameError("recipe", recipe, {name for info in registry.entries() for name in info.build.recipes})
    raise InputError(
        f"the method {registry.name_of(method)!r} has no recipe {recipe!r}. Leave the recipe out, or use a "
        f"method that has it: {', '.join(having)}."
    )


def check_trainable(model: Any) -> None:
    """Refuse what is not a module that can be copied and trained."""
    import torch

    check_module(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            "the model must be an ordinary torch.nn.Module, got a scripted or traced one, whose copy cannot be "
            "trained. Give the module that it was made from, and script the result."
        )
    if hasattr(model, "_orig_mod"):
        raise InputError(
            "the model must be an ordinary torch.nn.Module, got a compiled one. Give the module that was compiled, and "
            "compile the result; train={'compile': True} compiles it for the training."
        )


def check_batch(images: Any, shape: tuple[int, ...]) -> None:
    """Refuse a batch that is not float (N, C, H, W) of the key's ``shape`` (C, H, W)."""
    from torch import Tensor

    wanted = f"a float tensor of shape (N, {', '.join(map(str, shape))}), the batch as the model takes it"
    if not isinstance(images, Tensor):
        raise InputError(f"images must be {wanted}, got {_shown(images)}.")
    if not images.is_floating_point():
        kind = str(images.dtype).removeprefix("torch.")
        raise InputError(f"images must be {wanted}, got {kind}. Convert them as for the model: images.float() / 255.")
    if images.ndim != 4 or tuple(images.shape[1:]) != tuple(shape):
        raise InputError(
            f"images must be {wanted}, got the shape {tuple(images.shape)}. Use the key of this model's images, or "
            "make one for them."
        )
    if len(images) == 0:
        raise InputError(f"images must be {wanted}, got an empty batch.")


def _not_a_module(model: Any) -> str:
    if isinstance(model, Mapping):
        return "a mapping. If it is a state_dict: build the network and load it, model.load_state_dict(...)."
    if isinstance(model, type):
        return f"the class {model.__name__}. Give an instance: {model.__name__}(...)."
    if isinstance(model, str | Path):
        return f"{str(model)!r}. Build a network by its name with indelible.build_model(name, classes=..., shape=...)."
    if callable(model):
        return "a function. Give the module itself, or wrap the function in one whose forward calls it."
    return f"{_shown(model)}."


def _shown(value: Any) -> str:
    """Describe a value in a few words: short values as they are, others by their type."""
    if value is None or isinstance(value, bool | int | float | str):
        return f"{value!r:.60}"
    return f"a {type(value).__name__}"
