"""Dynamics: WSR and BA while an attack goes on, how far it has travelled, and when the verdict stops holding.

Ours: the paper shows where attacks end. The holder of the key watches from outside
(:mod:`indelible.train.watching`); the attack is given nothing that it would not have otherwise, and ends in
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

from indelible.analyze.directions import relative_length, weights_of
from indelible.analyze.document import Analysis
from indelible.analyze.points import Points
from indelible.analyze.subject import Subject, some
from indelible.attacks import attack
from indelible.base.errors import InputError
from indelible.base.methods import Method
from indelible.train.evaluate import accuracy
from indelible.train.loop import leftovers
from indelible.train.watching import watched
from indelible.verify import verify

__all__ = ["Dynamics", "DynamicsSettings", "Moment", "Track", "dynamics", "first_loss"]

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
            raise InputError(f"every is a number of steps of at least 1, but is {self.every}.")


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One look.

    Attributes:
        phase: Which training of the attack it was in.
        step: Steps done, over all phases.
        distance: Relative distance travelled.
        ba: Accuracy on clean test images.
        wsr: Of the verdict's queries.
        p_value: Of the verdict.
        owned: Whether the verdict holds.
    """

    phase: str
    step: int
    distance: float
    ba: float
    wsr: float
    p_value: float
    owned: bool


@dataclass(frozen=True, kw_only=True)
class Track:
    """One model under attack: what was seen, in order; the first look is before the attack, the last behind it."""

    label: str
    moments: tuple[Moment, ...]

    @property
    def lost(self) -> Moment | None:
        """The first look at which the verdict did not hold; None if it always did."""
        return first_loss(self.moments)


@dataclass(frozen=True, kw_only=True)
class Dynamics(Analysis):
    """Some models under the same attack."""

    figure: ClassVar[str] = "dynamics"
    settings: DynamicsSettings
    tracks: tuple[Track, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a look."""
        return [
            {"model": track.label, **{name: getattr(one, name) for name in Moment.__dataclass_fields__}}
            for track in self.tracks
            for one in track.moments
        ]

    def sentences(self) -> list[str]:
        """Say for each model when the verdict stopped holding."""
        return [_sentence(track, self.settings) for track in self.tracks]


def _sentence(track: Track, settings: DynamicsSettings) -> str:
    last, lost = track.moments[-1], track.lost
    name = settings.attack.upper()
    end = f"WSR {100 * last.wsr:.1f} %, p = {last.p_value:.2g}, BA {100 * last.ba:.1f} %, distance {last.distance:.3f}"
    if lost is None:
        return f"{track.label}: the verdict holds at alpha {settings.alpha:g} at every look of {name} ({end}, last)."
    if lost is track.moments[0]:
        return (
            f"{track.label}: the verdict at alpha {settings.alpha:g} does not hold even before {name} (WSR "
            f"{100 * lost.wsr:.1f} %, p = {lost.p_value:.2g}: other marks are answered alike, or the key's rarely); "
            f"{end} at the end."
        )
    again = " and holds again at the end" if last.owned else ""
    return (
        f"{track.label}: the verdict at alpha {settings.alpha:g} first stops holding at step {lost.step} of {name}, at "
        f"the relative distance {lost.distance:.3f} (WSR {100 * lost.wsr:.1f} %, p = {lost.p_value:.2g}, "
        f"BA {100 * lost.ba:.1f} %){again}; "
        f"{end} at the end."
    )


def first_loss(moments: Sequence[Moment]) -> Moment | None:
    """Return the first moment at which the verdict does not hold."""
    return next((one for one in moments if not one.owned), None)


def dynamics(
    subjects: Sequence[Subject], settings: DynamicsSettings | None = None, folder: str | Path | None = None,
    device: str = "auto",
) -> Dynamics:  # fmt: skip
    """Attack each model and watch its mark.

    Args:
        subjects: Marked models; each is attacked with its own attacker's images.
        settings: Which attack, and how often to look.
        folder: Keep looks and checkpoints there; a run that was broken off goes on.
        device: Where to attack.
    """
    chosen = settings or DynamicsSettings()
    if not subjects:
        raise InputError("dynamics need at least one model to attack.")
    identity = {"settings": chosen.to_json(), "subjects": [subject.identity() for subject in subjects]}
    place = None if folder is None else Path(folder)
    points = Points(place, {"figure": Dynamics.figure, **identity})
    tracks = [_track(number, one, chosen, points, place, device) for number, one in enumerate(subjects)]
    return Dynamics(settings=chosen, tracks=tuple(tracks))


def _track(
    number: int, subject: Subject, settings: DynamicsSettings, points: Points, folder: Path | None, device: str
) -> Track:
    look = _Look(number, subject, settings, points)
    look(subject.model, _BEFORE, 0)
    kept = None if folder is None else folder / f"attack-{number}"

    def watch(model: nn.Module, phase: str, step: int) -> None:
        if step % settings.every == 0 or step == 1:
            look(model, phase, step)

    with watched(watch):
        attacked = attack(
            subject.model, subject.attacker, settings.attack, seed=settings.seed, normalize=subject.normalize,
            folder=kept, device=device, **settings.settings,
        )  # fmt: skip
    last = {row["phase"]: int(row["step"]) for row in attacked.history}
    look(attacked.model, _AFTER, sum(last.values()))
    if kept is not None:
        for path in leftovers(kept):
            path.unlink()
    return Track(label=subject.label, moments=look.moments())


class _Look:
    """Measures a model on its way, once for each phase and step."""

    def __init__(self, number: int, subject: Subject, settings: DynamicsSettings, points: Points) -> None:
        self._number, self._subject, self._settings, self._points = number, subject, settings, points
        self._test = some(subject.test, settings.images, settings.seed)
        self._carriers = some(subject.test, settings.carriers, settings.seed)
        self._names = list(subject.model.state_dict())

    def __call__(self, model: nn.Module, phase: str, step: int) -> None:
        key = f"{self._number}/{phase}/{step}"
        if key in self._points or list(model.state_dict()) != self._names:
            return
        subject = self._subject
        origin = weights_of(subject.model)
        with torch.no_grad():
            moved = [after.to(at.device) - at for after, at in zip(weights_of(model), origin, strict=True)]
        found = verify(
            model, subject.key, self._carriers, alpha=self._settings.alpha, accuracy=False,
            normalize=subject.normalize,
        )  # fmt: skip
        self._points.add(
            key,
            {
                "phase": phase, "step": step, "distance": relative_length(origin, moved),
                "ba": accuracy(model, self._test, normalize=subject.normalize), "wsr": found.wsr,
                "p_value": found.p_value, "owned": found.owned,
            },
        )  # fmt: skip

    def moments(self) -> tuple[Moment, ...]:
        """Return all looks at this subject in order of time, with steps counted through the attack's phases."""
        rows = [row for key, row in self._points.items() if key.startswith(f"{self._number}/")]
        rows.sort(key=lambda row: (row["phase"] == _AFTER) - (row["phase"] == _BEFORE))
        made: list[Moment] = []
        passed, phase = 0, _BEFORE
        for row in rows:
            if row["phase"] != phase:
                # The end is counted through already.
                passed, phase = (0 if row["phase"] == _AFTER or not made else made[-1].step), row["phase"]
            made.append(Moment(**{**row, "step": passed + row["step"]}))
        return tuple(made)
