"""Every attack on one stolen run, within one accuracy budget: what AutoAttack is for robustness, for a watermark.

A defender must survive the strongest attack, not the average one. All registered attacks are run on the same model,
each into a run folder of its own, and are told apart by what they cost the thief: accuracy, image passes, seconds.

A tenth of the attacker's images is kept back from all attacks and measures the accuracy after each: attacks that train
on all they are given would otherwise be judged by what they were trained on. An attack that loses more than ``ba_drop``
there is over the budget: it may have washed the mark out, but it has broken the model.

The attacks see no key. Whether a mark is still there is a second step, with the key: ``judged=True`` does it right
after each attack, ``indelible verify --runs`` does it later.

A suite that was broken off is continued: finished attacks are kept, but only if model, images and settings are the
same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from indelible.attacks import ATTACKS, settings_of
from indelible.attacks.base import RECIPES
from indelible.base.checks import setting_names
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.seeding import generator
from indelible.bench.locks import working_on
from indelible.bench.making import HELD_OUT, attack_into, judge
from indelible.data.images import Data
from indelible.train.evaluate import accuracy
from indelible.train.run import Run

__all__ = ["AttackRow", "AttackSuite", "attack_all", "attack_folder", "check_kept", "held_back", "strongest"]

_SHARE = 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class AttackRow:
    """What one attack cost.

    Attributes:
        attack: Its registered name.
        folder: Its run folder; None when it was refused.
        accuracy: On the images that were kept back; None when it was refused.
        within: Whether that is within the budget.
        images: Image passes.
        seconds: Time of the attack itself.
        refused: Why it could not be run; empty when it was.
    """

    attack: str
    folder: str | None = None
    accuracy: float | None = None
    within: bool = False
    images: int = 0
    seconds: float = 0.0
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class AttackSuite:
    """All attacks on one model.

    Attributes:
        before: Accuracy of the stolen model on the images that were kept back.
        held_out: How many these are.
        ba_drop: Accuracy that an attack may lose, as a fraction.
        rows: One for each attack.
        left_out: Attacks without the recipe that was asked for.
    """

    before: float
    held_out: int
    ba_drop: float
    rows: tuple[AttackRow, ...]
    left_out: tuple[str, ...] = ()

    @property
    def folders(self) -> list[Path]:
        """Run folders of the attacks that were run."""
        return [Path(row.folder) for row in self.rows if row.folder is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the suite as plain JSON values."""
        return {**asdict(self), "rows": [asdict(row) for row in self.rows], "left_out": list(self.left_out)}


def attack_all(
    victim: Run,
    out: str | Path | None = None,
    *,
    methods: Sequence[str] | None = None,
    recipe: str = "sound",
    preset: str = "full",
    ba_drop: float = 0.02,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    device: str = "auto",
    curve_images: int | None = None,
    judged: bool = True,
) -> AttackSuite:
    """Run every attack on a stolen run; call it again to go on after a crash.

    Args:
        victim: The run whose model is attacked.
        out: What the folders' names begin with; by default the victim's folder: ``runs/app`` gives ``runs/app-ft``.
        methods: Attacks by name; by default all that are registered.
        recipe: ``"sound"`` or ``"paper"``; attacks without it are left out.
        preset: ``"full"`` or ``"cpu"``.
        ba_drop: Accuracy that an attack may lose, as a fraction; attacks with a strength choose it by the same number.
        settings: Settings of single attacks, by name.
        seed: Of all attacks, and of the images that are kept back.
        device: Where to compute.
        curve_images: Test images that measure strengths that were not chosen, when ``judged``; by default all.
        judged: Verify each result with the victim's key; without it no key is needed.
    """
    if not 0.0 <= ba_drop <= 1.0:
        raise InputError(f"ba_drop is a fraction of accuracy from 0 to 1, got {ba_drop}. Try 0.02.")
    if recipe not in RECIPES:
        raise UnknownNameError("recipe", recipe, RECIPES)
    names = [ATTACKS[name].name for name in (ATTACKS if methods is None else methods)]
    given, held = held_back(victim.images()[1], seed)
    digest, before = given.digest(), accuracy(victim.model(), held, normalize=victim.normalize())
    rows, left_out = [], []
    for name in names:
        build = ATTACKS[name].build
        if recipe not in build.recipes:
            left_out.append(name)
            continue
        common = {"recipe": recipe, **({"ba_drop": ba_drop} if "ba_drop" in setting_names(build) else {})}
        own = settings_of(name, preset, {**common, **(settings or {}).get(name, {})})
        folder = attack_folder(victim.folder if out is None else Path(out), name, recipe, preset)
        try:
            if Run.finished(folder):
                done = Run.load(folder)
                check_kept(done, victim, build.of(own).to_json(), digest)
            else:
                with working_on(folder):
                    done = attack_into(
                        folder, victim, name, preset=preset, seed=seed, device=device, curve_images=curve_images,
                        images=given, held_out=held, judged=judged, **own,
                    )  # fmt: skip
        except _KeptError:
            raise
        except InputError as error:
            # What one attack cannot handle must not cost the others; it is told at the end.
            rows.append(AttackRow(attack=name, refused=" ".join(str(error).split())))
            continue
        if judged and done.verdict() is None:  # broken off between the attack and the look at it
            judge(done)
        after = float(done.record.metrics[HELD_OUT]["after"])
        rows.append(
            AttackRow(
                attack=name,
                folder=str(folder),
                accuracy=after,
                within=after >= before - ba_drop - _ROUNDING,
                images=done.record.images,
                seconds=done.record.seconds,
            )
        )
    return AttackSuite(
        before=before, held_out=len(held), ba_drop=ba_drop, rows=tuple(rows), left_out=tuple(left_out)
    )  # fmt: skip


def held_back(data: Data, seed: int) -> tuple[Data, Data]:
    """Split the attacker's images: nine tenths for the attacks, one tenth that none of them sees."""
    held = max(1, round(_SHARE * len(data)))
    if len(data) - held < 3:
        raise InputError(f"the attacker has {len(data)} images, too few to keep a tenth back. Give at least four.")
    order = torch.randperm(len(data), generator=generator(seed, "attack-suite"))
    return data.subset(order[held:].sort().values), data.subset(order[:held].sort().values)


def attack_folder(base: Path, method: str, recipe: str = "sound", preset: str = "full") -> Path:
    """Return where a result goes: beside ``base``, apart by method, recipe and preset."""
    apart = [word for word, usual in ((recipe, "sound"), (preset, "full")) if word != usual]
    return base.with_name("-".join([base.name, method.replace(":", "-"), *apart]))


def check_kept(done: Run, victim: Run, settings: Mapping[str, Any], digest: str) -> None:
    """Refuse to count a finished run of other settings, of other images or of another model.

    Args:
        done: The finished run.
        victim: The run that is attacked.
        settings: The attack's settings.
        digest: Of the attacker's images.
    """
    record = done.record
    same = record.settings.get("method") == settings and record.inputs.get("data_digest") == digest
    if not same or done.parent is None or done.parent.resolve() != victim.folder.resolve():
        raise _KeptError(
            f"{done.folder} holds a finished run of other settings or of another model, or one that was given other "
            "images. Choose other folders with --out, or delete it."
        )


def strongest(runs: Sequence[Run], ba_drop: float = 0.02) -> Run | None:
    """Return the run with the lowest WSR among those within the accuracy budget; None when none has a verdict.

    Args:
        runs: Runs of :func:`attack_all`; others have no accuracy on images that were kept back, and do not count.
        ba_drop: Accuracy that an attack may have lost there, as a fraction.
    """
    left: list[tuple[float, Run]] = []
    for run in runs:
        verdict, held = run.verdict(), run.record.metrics.get(HELD_OUT)
        if verdict is None or verdict.get("wsr") is None or not isinstance(held, Mapping):
            continue
        if held["after"] >= held["before"] - ba_drop - _ROUNDING:
            left.append((float(verdict["wsr"]), run))
    return min(left, key=lambda pair: pair[0])[1] if left else None


class _KeptError(InputError):
    """A folder that must not be taken for a part of this suite."""
