"""Relearning: teach copies of the suspect a part of the marks, then ask them for the others.

Ours. A removal attack makes a network stop answering marks. Most attacks only switch off what leads from a mark to its
class, and leave in place what the network knows of the marks. So teach a copy of the suspect some marks again, and
change little in it: in a network that once knew the key, the others often come back too. In a network that never saw
the key they cannot, because their classes were drawn at random and nobody told them.

    lessons        s = 1, 2, 3: the first s quarters of the K marks are taught, the next quarter is asked
    gains          a copy in which only scales, shifts, biases and the last layer are trained, by SGD, on

                       CE(f(m_i(x)), c_i) + CE(f(x'), y')                             i taught; x, x' carriers

    head           a copy in which only the last layer (W, b) is trained, to convergence, on its inputs h

                       CE(W h(m_i(x)) + b, c_i) + 3 CE(W h(x') + b, y') + 0.001 ||W - W_0||^2

    ask            the next quarter, on carriers that were not used to teach: an exact p-value p_s
    decide         p_gains, p_head = P[chi-squared with 6 degrees of freedom >= -2 log(p_1 p_2 p_3)]   (Fisher)
                   p = 3 min(p_gains, p_head, p_0), p_0 the test without teaching, over all marks      (Bonferroni)

Why this is valid for any suspect: a copy is a function of the suspect, the marks, and the classes of the marks that it
was taught. If the suspect never saw the key, all this leaves the classes of the other marks uniform and independent,
which is all that :mod:`indelible.verification.statistics.codebook_tests` needs. So p_s is exact, whatever the earlier
ones were, and Fisher's product holds as for independent p-values.

``gains`` brings back what further training or pruning has switched off, ``head`` what a new last layer has.

| symbol | name | default | source |
|---|---|---|---|
| s | ``LESSONS`` | 3 | ours: chosen on seed 0 (docs/verification.md), as all else here |
| steps, rate | ``_STEPS``, ``_RATE`` | 100, 0.03 falling to 0; momentum 0.9 | ours |
| rows | ``_ROWS`` | 64 with a mark and 64 without in each step | ours |
| carriers | ``_TAUGHT``, ``_CLEAN`` | for the head 500 with each mark, 3,000 without one | ours |
| 3, 0.001 | ``_CLEAN_WEIGHT``, ``_STAY`` | | ours |

Training all weights brings back less, and takes longer.
"""

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.data.augment import Normalization, normalise, to_float
from indelible.data.images import Data
from indelible.keys.codebook import Codebook
from indelible.nn.outputs import logits_of
from indelible.nn.taps import last_layer, layer_inputs

LESSONS = 3
_STEPS = 100
_RATE = 0.03
_ROWS = 64
_TAUGHT, _CLEAN = 500, 3000
_CLEAN_WEIGHT, _STAY = 3.0, 1e-3
_BATCH = 500


def lessons(marks: int) -> list[tuple[range, range]]:
    """Return, for each lesson, which of so many marks are taught and which are asked."""
    ends = [marks * quarter // (LESSONS + 1) for quarter in range(1, LESSONS + 2)]
    return [(range(taught), range(taught, asked)) for taught, asked in pairwise(ends)]


class Teacher:
    """Teaches copies of ``model`` marks of ``book`` on ``carriers``; the model itself is left as it is.

    All draws have a fixed seed: a copy is a function of the model, the marks and classes taught, and the carriers.
    """

    def __init__(
        self, model: nn.Module, book: Codebook, carriers: Data, normalize: Normalization | None = None
    ) -> None:
        weight = next(model.parameters(), None)
        if weight is None:
            raise InputError("the procedure 'relearning' trains a copy of the suspect, got one without parameters.")
        self._model, self._book, self._carriers, self._normalize = model, book, carriers, normalize
        self._device, self._dtype, self._stamps = weight.device, weight.dtype, book.stamps(weight.device)
        self._head = last_layer(model, self._taken(torch.arange(min(2, len(carriers)))))

    @property
    def parts(self) -> dict[str, Callable[[Sequence[int]], nn.Module]]:
        """What can be trained in this model: each takes the marks to teach and returns a copy, in evaluation mode."""
        reads = self._head is not None and isinstance(self._head.layer, nn.Linear) and len(self._head.came or ()) == 2
        return {"gains": self.gains, "head": self.head} if reads else {"gains": self.gains}

    def gains(self, taught: Sequence[int]) -> nn.Module:
        """Return a copy that was taught by its scales, shifts, biases and last layer."""
        copied = self._copy()
        weights = [weight for weight in copied.parameters() if weight.ndim <= 1]
        if self._head is not None:
            weights += [weight for weight in self._head_of(copied).parameters() if weight.ndim > 1]
        for weight in weights:
            weight.requires_grad_(True)
        optimizer = torch.optim.SGD(weights, lr=_RATE, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / _STEPS)
        random, known = generator(0, "relearning"), torch.tensor(taught)
        for _ in range(_STEPS):
            rows = torch.randint(len(self._carriers), (2 * _ROWS,), generator=random)
            marks = known[torch.randint(len(known), (_ROWS,), generator=random)]
            images = torch.cat([self._taken(rows[:_ROWS], marks), self._taken(rows[_ROWS:])])
            labels = torch.cat([self._book.classes[marks], self._labels(rows[_ROWS:])]).to(self._device)
            optimizer.zero_grad()
            F.cross_entropy(logits_of(copied(images)), labels).backward()
            optimizer.step()
            schedule.step()
        return copied

    def head(self, taught: Sequence[int]) -> nn.Module:
        """Return a copy whose last layer was taught."""
        copied = self._copy()
        layer = self._head_of(copied)
        rows, clean = (torch.arange(min(most, len(self._carriers))) for most in (_TAUGHT, _CLEAN))
        shown, marks = rows.repeat(len(taught)), torch.tensor(taught).repeat_interleave(len(rows))
        with_marks, without = self._features(layer, copied, shown, marks), self._features(layer, copied, clean)
        classes, labels = self._book.classes[marks].to(self._device), self._labels(clean).to(self._device)
        layer.requires_grad_(True)
        weight = layer.get_parameter("weight")
        start = weight.detach().clone()
        optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=_STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            marked = F.cross_entropy(layer(with_marks), classes)
            plain = F.cross_entropy(layer(without), labels)
            value = marked + _CLEAN_WEIGHT * plain + _STAY * (weight - start).square().sum()
            value.backward()
            return value

        optimizer.step(loss)
        return copied

    def _copy(self) -> nn.Module:
        return copy.deepcopy(self._model).eval().requires_grad_(False)

    def _head_of(self, model: nn.Module) -> nn.Module:
        """Return the last layer of a copy; not for a model without one."""
        assert self._head is not None  # noqa: S101 - for the types
        return model.get_submodule(self._head.place[0])

    def _labels(self, rows: Tensor) -> Tensor:
        return self._carriers.gather(rows).labels.cpu()

    def _taken(self, rows: Tensor, marks: Tensor | None = None) -> Tensor:
        """Return carriers as the model takes them, each with its mark."""
        images = to_float(self._carriers.gather(rows).images.to(self._device))
        if marks is not None:
            images = self._stamps.apply(images, marks.to(self._device), rows.to(self._device))
        return normalise(images, self._normalize).to(self._dtype)

    def _features(self, layer: nn.Module, model: nn.Module, rows: Tensor, marks: Tensor | None = None) -> Tensor:
        """Return what ``layer`` gets of so many carriers: (N, features)."""
        drawn = [None] * len(rows) if marks is None else marks.split(_BATCH)
        return torch.cat([
            layer_inputs(model, layer, self._taken(part, which))
            for part, which in zip(rows.split(_BATCH), drawn, strict=False)
        ])  # fmt: skip
