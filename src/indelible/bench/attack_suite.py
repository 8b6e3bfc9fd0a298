"""Run every attack on one stolen run, within one accuracy budget, as AutoAttack does for robustness.

A watermark must survive the strongest attack, not the average one. Each attack writes a run folder of its own.

A tenth of the attacker's images is kept back from all attacks and measures the accuracy after each: attacks that train
on all they are given would otherwise be judged by what they were trained on. An attack that loses more than ``ba_drop``
there is over the budget: it may have removed the mark, but it has broken the model.

The attacks see no key. Whether a mark is still there is a second step, with the key: ``judged=True`` does it right
after each attack, ``indelible verify --runs`` does it later.

An interrupted suite is continued: finished attacks are kept, but only if model, images and settings are the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from indelible.attacks import ATTACKS
from indelible.attacks.removal_attack import PROTOCOLS, RemovalAttack
from indelible.base.checks import setting_names
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.records import JsonFields
from indelible.base.seeding import generator
from indelible.bench.locks import working_on
from indelible.bench.make_run_folder import HELD_OUT, attack_into, verdict_of
from indelible.bench.measurement import Measurement
from indelible.data.images import Data
from indelible.train.evaluate import accuracy
from indelible.train.run_folder import Run

_SHARE = 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class AttackRow:
    """What one attack cost."""

    attack: str  # its registered name
    folder: str | None = None  # its run folder; None when it was refused
    accuracy: float | None = None  # on the images that were kept back; None when it was refused
    within: bool = False  # whether that is within the budget
    images: int = 0  # image passes
    seconds: float = 0.0  # time of the attack itself
    refused: str = ""  # why it could not be run; empty when it was


@dataclass(frozen=True, kw_only=True)
class AttackSuite(JsonFields):
    """All attacks on one model."""

    before: float  # accuracy of the stolen model on the images that were kept back
    held_out: int  # how many these are
    ba_drop: float  # accuracy that an attack may lose, as a fraction
    rows: tuple[AttackRow, ...]  # one for each attack
    left_out: tuple[str, ...] = ()  # attacks without the protocol that was asked for

    @property
    def folders(self) -> list[Path]:
        """Run folders of the attacks that were run."""
        return [Path(row.folder) for row in self.rows if row.folder is not None]


@dataclass(frozen=True)
class Strongest:
    """The strongest attack on one model."""

    # the model after the attack with the worst verdict within the budget; None when none was within it
    stage: Measurement | None
    cost: float  # accuracy that this attack lost, as a fraction
    judged: int  # attacks with a verdict
    within: int  # those of them within the budget


def attack_all(
    victim: Run,
    out: str | Path | None = None,
    *,
    protocol: str = "sound",
    scale: str = "cpu",
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
        protocol: ``"sound"`` or ``"paper"``; attacks without it are left out.
        scale: ``"cpu"`` or ``"paper"``.
        ba_drop: Accuracy that an attack may lose, as a fraction; attacks with a strength choose it by the same number.
        settings: Settings of single attacks, by name.
        seed: Of all attacks, and of the images that are kept back.
        device: Where to compute.
        curve_images: Test images that measure strengths that were not chosen, when ``judged``; by default all.
        judged: Verify each result with the victim's key; without it no key is needed.
    """
    if not 0.0 <= ba_drop <= 1.0:
        raise InputError(f"ba_drop is a fraction of accuracy from 0 to 1, got {ba_drop}. Try 0.02.")
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    given, held = held_back(victim.images()[1], seed)
    digest, before = given.digest(), accuracy(victim.model(), held, normalize=victim.normalize())
    rows, left_out = [], []
    for name in ATTACKS:
        build = ATTACKS[name].build
        if protocol not in build.protocols:
            left_out.append(name)
            continue
        common = {"protocol": protocol, **({"ba_drop": ba_drop} if "ba_drop" in setting_names(build) else {})}
        own = {**common, **(settings or {}).get(name, {})}
        folder = attack_folder(victim.folder if out is None else Path(out), name, protocol, scale)
        if Run.finished(folder):
            done = Run.load(folder)
            check_kept(done, victim, build.at_scale(scale, **own), digest)
        else:
            try:
                with working_on(folder):
                    done = attack_into(
                        folder, victim, build.at_scale(scale, **own), scale=scale, seed=seed, device=device,
                        curve_images=curve_images, images=given, held_out=held, judged=judged,
                    )  # fmt: skip
            except InputError as error:
                # What one attack cannot handle must not cost the others; it is told at the end.
                rows.append(AttackRow(attack=name, refused=" ".join(str(error).split())))
                continue
        if judged and done.verdict is None:  # an earlier command was not to verify it
            done.keep_verdict(verdict_of(done))
        after = float(done.record.metrics[HELD_OUT]["after"])
        within = after >= before - ba_drop - _ROUNDING
        row = AttackRow(attack=name, folder=str(folder), accuracy=after, within=within)
        rows.append(replace(row, images=done.record.images, seconds=done.record.seconds))
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


def attack_folder(base: Path, method: str, protocol: str = "sound", scale: str = "cpu") -> Path:
    """Return where a result goes: beside ``base``, apart by method, protocol and scale."""
    apart = [] if protocol == "sound" else [f"{protocol}-protocol"]
    apart += [] if scale == "cpu" else [f"{scale}-scale"]
    return base.with_name("-".join([base.name, method.replace(":", "-"), *apart]))


def check_kept(done: Run, victim: Run, attack: RemovalAttack, digest: str) -> None:
    """Refuse to count a finished run of other settings, of other images or of another model."""
    record = done.record
    same = record.settings.get("method") == attack.to_json() and record.inputs.get("data_digest") == digest
    if not same or done.parent is None or done.parent.resolve() != victim.folder.resolve():
        raise InputError(
            f"{done.folder} holds a finished run of other settings or of another model, or one that was given other "
            "images. Choose other folders with --out, or delete it."
        )


def severity(verdict: Mapping[str, Any]) -> tuple[bool, float, float]:
    """Return a key that sorts verdicts from the worst for the owner on: NOT SHOWN, then a large p, then a low WSR.

    The WSR alone does not tell: of two attacks with the same rate, one may have left the marks' own classes and the
    other "any text here".
    """
    value = verdict.get("p_value")
    return bool(verdict.get("owned")), 0.0 if value is None else -float(value), float(verdict["wsr"])


def strongest(stages: Sequence[Measurement], ba_drop: float = 0.02, before: Measurement | None = None) -> Strongest:
    """Find the attack with the worst verdict among those within the accuracy budget, as AutoAttack reports robustness.

    ``before``, the model before attack, gives the cost of attacks that were not measured by images kept back.
    """
    judged = [stage for stage in stages if stage.verdict is not None and stage.wsr is not None]
    costs = [(stage, _cost(stage, before)) for stage in judged]
    within = [(stage, cost) for stage, cost in costs if cost is not None and cost <= ba_drop + _ROUNDING]
    if not within:
        return Strongest(None, 0.0, len(judged), 0)
    stage, cost = min(within, key=lambda pair: severity({**(pair[0].verdict or {}), "wsr": pair[0].wsr}))
    return Strongest(stage, cost, len(judged), len(within))


def _cost(after: Measurement, before: Measurement | None) -> float | None:
    """Return the accuracy that an attack lost, as a fraction; None when it is not known."""
    held = None if after.run is None else after.run.record.metrics.get(HELD_OUT)
    if isinstance(held, Mapping):
        return float(held["before"]) - float(held["after"])
    if before is None or before.ba is None or after.ba is None:
        return None
    return before.ba - after.ba
