"""Looking into a network while it runs: which layer gives which feature map, found by shapes, never by names.

:func:`trace` passes one batch and notes every call of every module. From that, :func:`stage_outputs` finds the last
feature map of every resolution, and :func:`feature_reader` the layer that reads the last feature map of all.
:func:`tapped` collects what chosen calls give. :func:`last_layer` is the one whose outputs are the classes.

A feature map is (N, C, H, W), or (N, tokens, D) in a transformer: then D counts as channels and the number of tokens as
the resolution. What is done by functions inside a ``forward`` (``F.relu``) shows at the next module only.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from indelible.base.errors import InputError
from indelible.nn.surgery import kept_modes

Place = tuple[str, int]
"""A call: the module's name, and how often it was called before in the same pass."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of one module; ``came`` and ``gave`` are the shapes of its first input and output tensor."""

    place: Place
    layer: nn.Module
    came: torch.Size | None
    gave: torch.Size | None
    number: int  # in the order in which calls begin
    within: tuple[int, ...]  # numbers of the calls that it happened in


@dataclass(frozen=True)
class FeatureReader:
    """The layer that reads the last feature map, and how its inputs belong to the map's channels."""

    name: str  # of the layer, convolution or linear
    channels: int  # of the map
    inputs: int  # of the layer; a flattened map has several to each channel
    tokens: bool  # the map is (N, tokens, D): channels vary fastest when it is flattened

    def spread(self, values: Tensor) -> Tensor:
        """Turn one value for each channel (C,) into one for each input of the layer."""
        times = self.inputs // self.channels
        return values.repeat(times) if self.tokens else values.repeat_interleave(times)

    def gather(self, values: Tensor) -> Tensor:
        """Sum one value for each input of the layer into one for each channel (C,)."""
        times = self.inputs // self.channels
        return values.view(times, -1).sum(0) if self.tokens else values.view(-1, times).sum(1)


def trace(model: nn.Module, images: Tensor) -> list[Call]:
    """Pass ``images`` through ``model`` in evaluation mode; return every call, in the order in which they end."""
    ended: list[Call] = []
    under_way: list[tuple[str, int, int, torch.Size | None]] = []
    counted: Counter[str] = Counter()

    def begin(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        first = _tensor((*args, *kwargs.values()))
        under_way.append((name, counted[name], counted.total(), None if first is None else first.shape))
        counted[name] += 1

    def end(layer: nn.Module, output: Any) -> None:
        name, times, number, came = under_way.pop()
        gave = _tensor(output)
        outer = tuple(call[2] for call in under_way)
        ended.append(Call((name, times), layer, came, None if gave is None else gave.shape, number, outer))

    with ExitStack() as hooks, kept_modes(model), torch.no_grad():
        for name, module in model.named_modules():
            hooks.enter_context(
                module.register_forward_pre_hook(
                    lambda _, args, kwargs, name=name: begin(name, args, kwargs), with_kwargs=True
                )
            )
            hooks.enter_context(module.register_forward_hook(lambda layer, _, output: end(layer, output)))
        model.eval()
        model(images)
    return ended


def last_layer(model: nn.Module, images: Tensor) -> Call | None:
    """Return the last call of a linear layer or convolution; None if there is none.

    ``images`` (N, C, H, W) are passed once, as the model takes them.
    """
    calls = [call for call in trace(model, images) if isinstance(call.layer, nn.Linear | _ConvNd)]
    return calls[-1] if calls else None


@torch.no_grad()
def layer_inputs(model: nn.Module, layer: nn.Module, images: Tensor) -> Tensor:
    """Return the first argument that ``layer`` was called with last, while ``images`` pass through ``model``."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].detach()))
    try:
        model(images)
    finally:
        hook.remove()
    return seen[-1]


def stage_outputs(model: nn.Module, images: Tensor) -> list[Place]:
    """Return the call that gives the last feature map of every resolution, from the first stage to the last.

    Maps inside a block that lowers the resolution belong to the next stage already and are passed over: the widened
    map of a bottleneck is not the end of the stage before it. Maps of one pixel have no attention and are left out.
    ``images`` are a small batch, as the model expects it.
    """
    calls = trace(model, images)
    by_number = {call.number: call for call in calls}
    last: dict[tuple[int, ...], Call] = {}
    inner: dict[tuple[int, ...], Call] = {}
    for call in calls:
        size = _resolution(call.gave, len(images))
        if size is None or torch.Size(size).numel() < 2 or call.number == 0:
            continue
        enclosing = [by_number[number] for number in call.within]
        kept = inner if any(_lowers(outer, size, images) for outer in enclosing) else last
        kept[size] = call
    # A network that never shows a map outside such a block is better read there than not at all.
    found = last or inner
    if not found:
        raise InputError(
            f"{type(model).__name__} has no feature map (N, C, H, W) or (N, tokens, D) of more than one pixel at the "
            "output of any module. Choose an attack that needs none, such as ft."
        )
    return [call.place for call in sorted(found.values(), key=calls.index)]


def feature_reader(model: nn.Module, images: Tensor) -> FeatureReader:
    """Return the layer that reads the last feature map of a small batch: usually the first linear layer."""
    calls = trace(model, images)
    shown: torch.Size | None = None
    found: tuple[Call, torch.Size] | None = None
    for call in calls:
        if isinstance(call.layer, nn.Linear | _ConvNd) and shown is not None:
            found, shown = (call, shown), None
        if _resolution(call.gave, len(images)) is not None:
            shown = call.gave
    if found is None:
        raise InputError(
            f"{type(model).__name__} has no convolution or linear layer behind a feature map (N, C, H, W) or "
            "(N, tokens, D), so that there is no stage to prune. Choose an attack that needs none, such as ft."
        )
    (call, size), layer = found, found[0].layer
    inputs = int(layer.in_channels if isinstance(layer, _ConvNd) else layer.in_features)  # type: ignore[arg-type]
    tokens = len(size) == 3
    channels = size[-1] if tokens else size[1]
    # Something between the map and the layer mixes channels (pixel shuffle, concatenation): each input is its own.
    return FeatureReader(call.place[0], channels if inputs % channels == 0 else inputs, inputs, tokens)


@contextmanager
def tapped(model: nn.Module, places: Sequence[Place]) -> Iterator[dict[Place, Tensor]]:
    """Yield a dict that holds, after a pass inside the block, what the calls at ``places`` gave in that pass.

    Outputs stay in the graph. A second pass inside the same block is not collected.
    """
    found: dict[Place, Tensor] = {}
    counted: Counter[str] = Counter()
    wanted = set(places)

    def keep(name: str, output: Any) -> None:
        place = (name, counted[name])
        counted[name] += 1
        tensor = _tensor(output)
        if place in wanted and tensor is not None:
            found[place] = tensor

    modules = dict(model.named_modules())
    with ExitStack() as hooks:
        for name in dict.fromkeys(name for name, _ in places):
            hooks.enter_context(
                modules[name].register_forward_hook(lambda _, __, output, name=name: keep(name, output))
            )
        yield found


def _tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, tuple | list):
        return next((item for item in value if isinstance(item, Tensor)), None)
    return None


def _resolution(shape: torch.Size | None, rows: int) -> tuple[int, ...] | None:
    if shape is None or len(shape) not in {3, 4} or shape[0] != rows:
        return None
    return tuple(shape[2:]) if len(shape) == 4 else (shape[1],)


def _lowers(call: Call, size: tuple[int, ...], images: Tensor) -> bool:
    """Tell whether a call takes a feature map of ``size`` and gives a smaller one, inside one block."""
    if type(call.layer) is nn.Sequential or call.came is None or call.came[1:] == images.shape[1:]:
        return False
    came, gave = (_resolution(shape, len(images)) for shape in (call.came, call.gave))
    return came == size and gave != size
