"""Dynamics: WSR and BA during an attack, how far it has travelled, and when the verdict stops holding.

Ours: the paper shows where attacks end. The holder of the key watches from outside
(:mod:`indelible.train.fit_and_watch`); the attack is given nothing that it would not have otherwise, and ends in
the same bits.

| name | default | source |
|---|---|---|
| ``attack`` | ``"ft"`` | any removal attack; ``settings`` are its own |
| ``every`` | 10 | ours: steps between two looks |
| ``images`` | 500 | ours: clean test images for BA |
| ``carriers`` | 200 | ours: test images that each look's verdict is asked on; fewer queries, weaker evidence |
| ``alpha`` | 1e-6 | the verdict's level |

Distance is ||theta - theta_w|| / ||theta_w|| over all trainable parameters. What an attack trains beside the stolen
model (a teacher, a student, a path) is not looked at; what it does between two trainings shows at the next look.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from indelible.analyze.analysis import Analysis, PointLog
from indelible.analyze.directions import relative_length, weights_of
from indelible.analyze.marked_model import MarkedModel, some_images
from indelible.attacks import ATTACKS, attack
from indelible.base.errors import InputError
from indelible.base.methods import Method
from indelible.report.figures import FIGURES, Figure
from indelible.train.evaluate import accuracy
from indelible.train.fit_and_watch import watched
from indelible.train.loop import leftovers
from indelible.verification import verify
from indelible_companions.analyze.dynamics_figure import dynamics_drawing

_BEFORE, _AFTER = "before", "after"


@dataclass(frozen=True, kw_only=True)
class DynamicsSettings(Method):
    """What to watch; the table in the module's header explains each setting."""

    attack: str = "ft"
    settings: Mapping[str, Any] = field(default_factory=dict)
    every: int = 10
    images: int = 500
    carriers: int = 200
    alpha: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"every must be at least 1 step, got {self.every}.")


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What was measured at one step of the attack."""

    phase: str  # which training of the attack it was in
    step: int  # steps done, over all phases
    distance: float  # relative distance travelled
    ba: float  # accuracy on clean test images
    wsr: float  # of the verdict's queries
    p_value: float  # of the verdict
    owned: bool  # whether the verdict holds


@dataclass(frozen=True, kw_only=True)
class Track:
    """One model under attack: what was seen, in order; the first look is before the attack, the last after it."""

    label: str
    moments: tuple[Moment, ...]

    @property
    def lost(self) -> Moment | None:
        """The first look at which the verdict did not hold; None if it always did."""
        return next((one for one in self.moments if not one.owned), None)


@dataclass(frozen=True, kw_only=True)
class Dynamics(Analysis):
    """Some models under the same attack."""

    figure: ClassVar[str] = "dynamics"
    settings: DynamicsSettings
    tracks: tuple[Track, ...]

    @classmethod
    def of_models(cls, models: Sequence[MarkedModel], settings: Mapping[str, Any], folder: Path) -> "Dynamics":
        """Attack each model, as ``indelible analyze dynamics`` does."""
        return dynamics(models, DynamicsSettings.of(settings), folder)


FIGURES[Dynamics.figure] = Figure(
    dynamics_drawing, title="The watermark during an attack",
    note="Measured with the key, which the attacker does not have.",
)  # fmt: skip


def dynamics(
    subjects: Sequence[MarkedModel], settings: DynamicsSettings | None = None, folder: str | Path | None = None,
    device: str = "auto",
) -> Dynamics:  # fmt: skip
    """Attack each model with its own attacker's images and watch its mark.

    Looks and checkpoints are kept in ``folder``, so that a run that was interrupted is continued.
    """
    chosen = settings or DynamicsSettings()
    if not subjects:
        raise InputError("dynamics need at least one model to attack.")
    identity = {"settings": chosen.to_json(), "subjects": [subject.identity() for subject in subjects]}
    points = PointLog(folder, {"figure": Dynamics.figure, **identity})
    tracks = [_track(number, one, chosen, points, folder, device) for number, one in enumerate(subjects)]
    return Dynamics(settings=chosen, tracks=tuple(tracks))


def _track(
    number: int, subject: MarkedModel, settings: DynamicsSettings, points: PointLog, folder: str | Path | None,
    device: str,
) -> Track:  # fmt: skip
    origin, names = weights_of(subject.model), list(subject.model.state_dict())
    test, carriers = (
        some_images(subject.test, count, settings.seed) for count in (settings.images, settings.carriers)
    )  # fmt: skip

    def look(model: nn.Module, phase: str, step: int) -> None:
        """Measure the model once for each phase and step; what an attack trains beside it has other names."""
        key = f"{number}/{phase}/{step}"
        if key in points or list(model.state_dict()) != names:
            return
        with torch.no_grad():
            moved = [after.to(at.device) - at for after, at in zip(weights_of(model), origin, strict=True)]
        found = verify(
            model, subject.key, carriers, alpha=settings.alpha, accuracy=False, normalize=subject.normalize
        )  # fmt: skip
        ba = accuracy(model, test, normalize=subject.normalize)
        rates = {"ba": ba, "wsr": found.wsr, "p_value": found.p_value, "owned": found.owned}
        points[key] = {"phase": phase, "step": step, "distance": relative_length(origin, moved), **rates}

    def watch(model: nn.Module, phase: str, step: int) -> None:
        if step % settings.every == 0 or step == 1:
            look(model, phase, step)

    look(subject.model, _BEFORE, 0)
    kept = None if folder is None else Path(folder) / f"attack-{number}"
    with watched(watch):
        attacked = attack(
            subject.model, subject.attacker, ATTACKS[settings.attack].build.at_scale("paper", **settings.settings),
            seed=settings.seed, normalize=subject.normalize, folder=kept, device=device,
        )  # fmt: skip
    last = {row["phase"]: int(row["step"]) for row in attacked.history}
    look(attacked.model, _AFTER, sum(last.values()))
    if kept is not None:
        for path in leftovers(kept):
            path.unlink()
    seen = [row for key, row in points.items() if key.startswith(f"{number}/")]
    return Track(label=subject.label, moments=_in_time(seen))


def _in_time(rows: Sequence[Mapping[str, Any]]) -> tuple[Moment, ...]:
    """Return all looks in order of time, with steps counted through the attack's phases."""
    made: list[Moment] = []
    passed, phase = 0, _BEFORE
    for row in sorted(rows, key=lambda row: (row["phase"] == _AFTER) - (row["phase"] == _BEFORE)):
        if row["phase"] != phase:
            # The end is counted through already.
            passed, phase = (0 if row["phase"] == _AFTER or not made else made[-1].step), row["phase"]
        made.append(Moment(**{**row, "step": passed + row["step"]}))
    return tuple(made)
