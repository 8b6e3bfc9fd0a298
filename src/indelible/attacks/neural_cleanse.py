"""Neural Cleanse: find, for every class, the smallest patch that sends any image there. A mark shows as a small one.

Paper: Wang et al., "Neural Cleanse: Identifying and Mitigating Backdoor Attacks in Neural Networks", IEEE S&P 2019,
Section IV; details from the authors' published code (``original``) and from that of the ICCV 2023 paper (``paper``).

    A(x, m, p) = (1 - m) x + m p,     min over m, p of  mean CE(f(A(x, m, p)), y) + lambda |m|_1     for each class y

| symbol | name | original | paper |
|---|---|---|---|
| m | mask | one channel, (1 + tanh) / 2, random start | one for each channel, sigmoid of U(0, 1) |
| p | pattern | (1 + tanh) / 2, random start | sigmoid of U(0, 1) |
| images | - | all | all but those of class y |
| lambda | ``cost`` | 0, then 1e-3, then dynamic | 1e-4, fixed |
| success wanted | ``success`` | 0.99 | - |
| lambda moves after | ``patience`` | 5 rounds | - |
| by the factor | ``factor`` | 2 up, 2^1.5 down | - |
| stop after | ``stop_patience`` | 25 rounds without a smaller mask, once lambda went both ways | - |
| images per round | ``round_images`` | 1000 | - |
| rate of Adam(0.5, 0.9) | ``lr`` | 0.1 | 0.1 |
| batch | ``batch_size`` | 32 | 128 |
| images in one pass | ``rows`` | 256 on a CPU, 4096 elsewhere | the same; memory against speed |
| result | - | the smallest mask that succeeded | the last one |
| passes over the images | ``epochs`` | 1000 rounds at most | 15; 5 with 100 classes |

The anomaly index is |n - median n| / (1.4826 median |n - median n|) over the classes' norms n; classes below the median
with an index above 2 are suspicious.

How it differs: all classes are searched at once, their patches folded into one batch (docs/attacks/nnl.md). The state
of a search is a dictionary of tensors whose first axis is the class: raw masks and patterns, Adam's moments, the best
patch so far, lambda and its counters.
"""

import hashlib
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.checks import check_words
from indelible.base.errors import InputError
from indelible.base.files import canonical_json, tensor_digest
from indelible.base.progress import Progress
from indelible.base.seeding import generator
from indelible.data.augment import Normalization, normalise
from indelible.data.batches import Batches
from indelible.data.images import Batch, Data, ImageData
from indelible.nn.folded_batchnorm import folded
from indelible.nn.outputs import logits_of
from indelible.train.checkpoint import read_checkpoint, write_checkpoint

_CONSISTENCY = 1.4826  # makes the median absolute deviation of a normal distribution its standard deviation
_BETAS, _ADAM_EPS, _TANH_EPS = (0.5, 0.9), 1e-8, 1e-7
_SAVE_SECONDS = 60.0
_RAW = ("raw_masks", "raw_patterns")
_COSTS = ("cost", "best", "stop_best", "set", "up", "down", "stale", "went_up", "went_down", "stopped")
State = dict[str, Tensor]


def stamp(images: Tensor, masks: Tensor, patterns: Tensor) -> Tensor:
    """Put each of K patches on each of N images: (K * N, C, H, W), all images with the first patch first."""
    return torch.lerp(images[None], patterns[:, None], masks[:, None].expand_as(patterns[:, None])).flatten(0, 1)


def stamp_gradients(gradient: Tensor, images: Tensor, masks: Tensor, patterns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of masks and patterns, given that of the stamped images (K * N, C, H, W).

    With g the gradient of A = (1 - m) x + m p, dp = m sum g and dm = p sum g - sum g x, sums over the N images: two
    reductions, where differentiating through :func:`stamp` would write several tensors of K N images.
    """
    each = gradient.unflatten(0, (len(masks), len(images)))
    total = each.sum(1)
    of_masks = patterns * total - (each * images).sum(1)
    return of_masks.sum(1, keepdim=True) if masks.shape[1] == 1 else of_masks, masks * total


def anomaly_indices(norms: Tensor, *, lower: bool = False) -> Tensor:
    """Return how far each norm (K,) lies from the median, in (consistent) median absolute deviations.

    With ``lower``, the median of an even number is the lower of the two middle values, not their mean.
    """

    def median(values: Tensor) -> Tensor:
        return values.median() if lower else values.quantile(0.5)

    distances = (norms - median(norms)).abs()
    # All norms equal: no class stands out.
    return distances / (_CONSISTENCY * median(distances)).clamp_min(torch.finfo(norms.dtype).tiny)


def suspicious(norms: Tensor, *, lower: bool = False, above: float = 2.0) -> list[int]:
    """Return the classes whose norm is an outlier below the median, the smallest first."""
    indices = anomaly_indices(norms, lower=lower)
    middle = norms.median() if lower else norms.quantile(0.5)
    found = ((indices > above) & (norms <= middle)).nonzero().flatten()
    return [int(label) for label in found[norms[found].argsort()]]


def next_costs(state: State, reached: Tensor, settings: "NeuralCleanse") -> State:
    """Return the state after a round: lambda, its counters and who stops; all of shape (K,).

    ``reached`` says whose success was high enough in this round.
    """
    new, patience, factor = dict(state), settings.patience, settings.factor
    found = new["best"].isfinite()
    new["stale"] = torch.where(found & (new["best"] >= new["stop_best"]), new["stale"] + 1, new["stale"] * ~found)
    new["stop_best"] = torch.minimum(new["best"], new["stop_best"])
    done = new["went_up"].bool() & new["went_down"].bool() & (new["stale"] >= settings.stop_patience)
    new["stopped"] = new["stopped"] | done
    new["set"] = (new["set"] + 1) * ((new["cost"] == 0) & reached)
    begins = new["set"] >= patience
    new["cost"] = torch.where(begins, settings.cost, new["cost"])
    for name in ("up", "down", "went_up", "went_down"):
        new[name] = new[name] * ~begins
    new["up"], new["down"] = (new["up"] + 1) * reached, (new["down"] + 1) * ~reached
    rises, falls = new["up"] >= patience, new["down"] >= patience
    new["cost"] = torch.where(rises, new["cost"] * factor, torch.where(falls, new["cost"] / factor**1.5, new["cost"]))
    new["went_up"], new["went_down"] = new["went_up"] | rises, new["went_down"] | falls
    new["up"], new["down"] = new["up"] * ~rises, new["down"] * ~falls
    return new


@dataclass(frozen=True)
class Triggers:
    """One recovered patch for each class, how often it succeeded in its round, and what the search cost."""

    masks: Tensor
    patterns: Tensor
    success: Tensor
    images: int
    earlier: float  # seconds of the sessions before this one

    def norms(self) -> Tensor:
        """Return the L1 norm of each mask (of its mean over channels), (K,)."""
        return self.masks.mean(1).flatten(1).sum(1)


@dataclass(frozen=True, kw_only=True)
class NeuralCleanse:
    """The search as a value; the table in the module's header explains each setting."""

    variant: Literal["original", "paper"] = "original"
    epochs: int = 15
    batch_size: int = 32
    round_images: int = 1000
    lr: float = 0.1
    cost: float = 1e-3
    success: float = 0.99
    patience: int = 5
    factor: float = 2.0
    stop_patience: int = 25
    rows: int | None = None

    def __post_init__(self) -> None:
        check_words(self)
        if min(self.epochs, self.batch_size, self.round_images, self.rows or 1, self.patience) < 1:
            raise InputError("epochs, batch_size, round_images, rows and patience must be at least 1.")


class PatchSearch:
    """A search of a patch for every class of ``data``; one found in ``folder`` under ``name`` is continued.

    With ``dear``, (K, 1, H, W), a pixel of a mask costs so many times lambda: a way to keep off some places.
    """

    def __init__(
        self, settings: NeuralCleanse, model: nn.Module, data: Data, *, seed: int,
        normalize: Normalization | None = None, folder: Path | None = None, device: torch.device | str = "cpu",
        dear: Tensor | None = None, name: str = "neural-cleanse",
    ) -> None:  # fmt: skip
        self.settings, self.seed, self.normalize = settings, seed, normalize
        self.device = device = torch.device(device)
        # On a CPU a larger pass leaves the cache and is slower again; elsewhere it keeps the device busy.
        self.rows = settings.rows or (256 if device.type == "cpu" else 4096)
        self.classes, self.shape = len(data.classes), data.shape
        self.path = None if folder is None else folder / f"phase-{name}.safetensors"
        self.dear = None if dear is None else dear.to(device)
        # How many classes are in a pass decides the speed, not the result.
        deciding = {name: value for name, value in asdict(settings).items() if name != "rows"}
        identity = [deciding, seed, data.digest(), normalize, tensor_digest(model.state_dict())]
        identity += [] if dear is None else [tensor_digest({"dear": dear})]
        self.fingerprint = hashlib.sha256(canonical_json(identity)).hexdigest()
        self.batches = Batches(
            data=data.to(device) if isinstance(data, ImageData) else data, batch_size=settings.batch_size, seed=seed,
            augmentation="none", device=device,
        )  # fmt: skip
        probe = normalise(next(self.batches.epoch(0))[0], normalize)
        # A frozen copy, folded and laid out for speed: nothing has to be restored.
        self.model = folded(model, probe)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        total = settings.epochs * self.batches.steps
        self.steps_a_round = min(max(1, round(settings.round_images / settings.batch_size)), total)
        self.rounds = math.ceil(total / self.steps_a_round)
        self.total = total
        self.round, self.images, self.before = 0, 0, 0.0
        self.state = self._start()

    def run(self) -> Triggers:
        """Search until every class has stopped or the budget is used up."""
        began = saved = time.monotonic()
        self._resume()
        earlier = self.before
        with Progress("neural cleanse", self.rounds, done=self.round) as bar:
            while self.round < self.rounds and not bool(self.state["stopped"].all()):
                self._advance()
                self.round += 1
                bar.advance(note=self._note() if bar.due else None)
                if time.monotonic() - saved > _SAVE_SECONDS:
                    saved = time.monotonic()
                    self._save(earlier + saved - began)
            seconds = earlier + time.monotonic() - began
            bar.line(f"neural cleanse: {self.round}/{self.rounds} rounds  {self.images} images  {seconds:.0f} s")
        self._save(seconds)
        return self._found(earlier)

    def _note(self) -> str:
        least = float(self._found().norms().min())
        return f"{int(self.state['stopped'].sum())} stopped, least mask {least:.1f}"

    def _found(self, earlier: float = 0.0) -> Triggers:
        """Return the patches so far: of each class the smallest that succeeded, failing that the present one."""
        found = self.state["best"].isfinite()[:, None, None, None]
        masks, patterns = (
            torch.where(found, self.state[f"best_{what}"].cpu(), self._unit(self.state[f"raw_{what}"]).cpu())
            for what in ("masks", "patterns")
        )
        return Triggers(masks, patterns, self.state["success"], self.images, earlier)

    @property
    def _original(self) -> bool:
        return self.settings.variant == "original"

    def _unit(self, raw: Tensor) -> Tensor:
        return raw.tanh() / (2.0 - _TANH_EPS) + 0.5 if self._original else raw.sigmoid()

    def _start(self) -> State:
        channels, height, width = self.shape
        state: State = {}
        for name, depth in zip(_RAW, (1 if self._original else channels, channels), strict=True):
            # Each class draws its own start, so that none depends on how many others are searched.
            drawn = torch.stack([
                torch.rand(depth, height, width, generator=generator(self.seed, "patch", name, label))
                for label in range(self.classes)
            ])  # fmt: skip
            raw = ((drawn - 0.5) * (2.0 - _TANH_EPS)).atanh() if self._original else drawn
            state[name] = raw.to(self.device)
            state[f"{name}.mean"], state[f"{name}.square"] = torch.zeros_like(raw), torch.zeros_like(raw)
            state[name.replace("raw", "best")] = torch.zeros_like(raw)
        state |= {name: torch.zeros(self.classes, dtype=torch.int64) for name in _COSTS[3:7]}
        state |= {name: torch.zeros(self.classes, dtype=torch.bool) for name in _COSTS[7:]}
        state |= {name: torch.full((self.classes,), math.inf) for name in ("best", "stop_best")}
        state["cost"] = torch.full((self.classes,), 0.0 if self._original else self.settings.cost)
        state["success"] = torch.zeros(self.classes)
        return state

    def _advance(self) -> None:
        """Do one round for the classes that have not stopped, as many in one pass as the limit allows."""
        first = self.round * self.steps_a_round
        count = min(self.steps_a_round, self.total - first)
        active = (~self.state["stopped"]).nonzero().flatten()
        success, norms = torch.zeros(self.classes), torch.full((self.classes,), math.inf)
        for group in active.split(max(1, self.rows // self.settings.batch_size)):
            success[group], norms[group] = self._round(group, first, count)
        waiting = active[~self.state["best"][active].isfinite()]
        self.state["success"][waiting] = success[waiting]
        if self._original:
            reached = success >= self.settings.success
            self._keep((reached & (norms < self.state["best"])).nonzero().flatten(), norms, success)
            costs = {name: self.state[name][active] for name in _COSTS}
            moved = next_costs(costs, reached[active], self.settings)
            for name in _COSTS:
                self.state[name][active] = moved[name]

    def _keep(self, better: Tensor, norms: Tensor, success: Tensor) -> None:
        here = better.to(self.device)
        for name in _RAW:
            self.state[name.replace("raw", "best")][here] = self._unit(self.state[name][here])
        self.state["best"][better], self.state["success"][better] = norms[better], success[better]

    def _round(self, group: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Do the steps of a round for some classes; return their mean success and mean norm of the mask."""
        rows, costs = group.to(self.device), self.state["cost"][group].to(self.device)
        part = {name: self.state[name][rows] for name in self.state if name.startswith("raw_")}
        hits = norms = torch.zeros(len(group), device=self.device)
        asked = torch.zeros(len(group), device=self.device)
        for step, (images, labels) in enumerate(self._batches(first, count), first + 1):
            counted = torch.ones_like(labels).expand(len(group), -1) if self._original else labels != rows[:, None]
            shown = normalise(images, self.normalize).contiguous(memory_format=torch.channels_last)
            right, norm = self._step(part, shown, counted.float(), rows, costs, step)
            hits, norms, asked = hits + right, norms + norm / count, asked + counted.sum(1)
            self.images += len(group) * len(images)
        for name, tensor in part.items():
            self.state[name][rows] = tensor
        return (hits / asked.clamp_min(1)).cpu(), norms.cpu()

    def _step(
        self, part: State, images: Tensor, counted: Tensor, targets: Tensor, costs: Tensor, step: int
    ) -> tuple[Tensor, Tensor]:
        """Do one step of Adam for the patches in ``part``; return hits and norms of each class, (K,).

        ``images`` are as the model sees them: normalised, channels_last.
        """
        raw = [part[name].requires_grad_() for name in _RAW]
        masks, patterns = map(self._unit, raw)
        price = 1.0 if self.dear is None else self.dear[targets]
        # Blending and normalising commute, so that images are normalised once for all classes.
        shown = normalise(patterns, self.normalize)
        stamped = stamp(images, masks.detach(), shown.detach()).contiguous(memory_format=torch.channels_last)
        logits = logits_of(self.model(stamped.requires_grad_())).unflatten(0, (len(targets), len(images)))
        wanted = targets[:, None].expand(-1, len(images))
        losses = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
        each = (losses * counted).sum(1) / counted.sum(1).clamp_min(1)
        (reaching,) = torch.autograd.grad(each.sum(), stamped)
        with torch.no_grad():
            of_masks, of_patterns = stamp_gradients(reaching, images, masks, shown)
            of_masks = of_masks + costs[:, None, None, None] * price  # lambda times the gradient of |m|_1, m positive
        gradients = torch.autograd.grad([masks, shown], raw, [of_masks, of_patterns])
        for name, value, gradient in zip(_RAW, raw, gradients, strict=True):
            mean = part[f"{name}.mean"].lerp_(gradient, 1.0 - _BETAS[0]) / (1.0 - _BETAS[0] ** step)
            square = part[f"{name}.square"].lerp_(gradient.square(), 1.0 - _BETAS[1]) / (1.0 - _BETAS[1] ** step)
            part[name] = value.detach() - self.settings.lr * mean / (square.sqrt() + _ADAM_EPS)
        return ((logits.argmax(2) == wanted) * counted).sum(1), (masks.detach() * price).flatten(1).sum(1)

    def _batches(self, first: int, count: int) -> Iterator[Batch]:
        while count:
            epoch, start = divmod(first, self.batches.steps)
            for batch in islice(self.batches.epoch(epoch, start=start), count):
                yield batch
                first, count = first + 1, count - 1

    def _resume(self) -> None:
        if self.path is not None and (found := read_checkpoint(self.path, self.fingerprint)) is not None:
            self.state = {name: tensor.to(self.state[name].device) for name, tensor in found.part("state").items()}
            self.round, self.images, self.before = found.meta["step"], found.meta["images"], found.meta["seconds"]

    def _save(self, seconds: float) -> None:
        if self.path is not None:
            meta = {"step": self.round, "images": self.images, "seconds": seconds, "fingerprint": self.fingerprint}
            write_checkpoint(self.path, {f"state.{name}": value for name, value in self.state.items()}, meta)
