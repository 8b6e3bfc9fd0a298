"""What is measured, part by part, and how a run goes on where an earlier one stopped.

Machines are noisy: what counts are ratios within one round. Each round measures every case of a unit once, in turn, and
a ratio is taken against the base case of the same round. Every finished round is kept in a file, so that a run that was
broken off loses at most one; of memory and the grid, which are measured once, every case is kept as it comes.

| part | cases | base | value |
|---|---|---|---|
| ``app`` | plain, data pipeline, APP exact, balanced and light | plain | seconds a step |
| ``methods`` | plain, Vanilla, EW, CW, c-BN only | plain | seconds a step |
| ``memory`` | both together, without the pipeline | plain | MiB |
| ``attacks`` | every registered attack | plain | seconds an image pass |
| ``verify`` | a verdict | a forward pass | seconds an image |
| ``grid`` | one worker, two, ... | one worker | seconds a cell, wall time |
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.files import canonical_json, read_json, write_json
from indelible.base.progress import Progress
from indelible.base.records import hardware, plain, versions
from speed_suite.clock import clock_name
from speed_suite.other_work import FORWARD, attacks_round, by_workers, grid_round, verify_round
from speed_suite.steps import APP_CASES, CASES, PLAIN, Round, Scene, memory_round, steps_round

__all__ = ["NETWORKS", "PARTS", "Unit", "choose_units", "measure_units"]

NETWORKS = ("resnet-18", "resnet-mini")
"""The paper's network and that of the CPU benchmark."""
PARTS = ("app", "methods", "memory", "attacks", "verify", "grid")
_BOTH = {"app", "methods", "memory"}  # of every network; the others of the last
_ONCE = {"memory", "grid"}  # the same every time, or too long to repeat
_READY = {"app", "methods", "memory", "grid"}  # warmed up by themselves, or nothing to warm up
_FORMAT = 1
Kept = tuple[list[dict[str, float]], dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One part for one network.

    Attributes:
        part: See the module's header.
        network: Name of the network.
        base: The case that ratios are taken against.
        value: What is measured, in words.
        rounds: How often.
        settings: What decides the result; rounds of other settings are not continued.
        prepare: Gets ready and returns what measures one round.
    """

    part: str
    network: str
    base: str
    value: str
    rounds: int
    settings: Mapping[str, Any]
    prepare: Callable[[], Round]

    @property
    def name(self) -> str:
        """Part and network."""
        return f"{self.part}-{self.network}"


def choose_units(
    parts: Sequence[str] = PARTS, networks: Sequence[str] = NETWORKS, *, batch_size: int = 128, rounds: int = 7,
    device: torch.device | None = None,
) -> list[Unit]:  # fmt: skip
    """Return the units of some parts and networks; attacks, verification and the grid are measured on the last network.

    Args:
        parts: Some of :data:`PARTS`.
        networks: Names of networks; of attacks, verification and grid, only the last is measured.
        batch_size: Images in a plain step.
        rounds: How often each case is measured; memory and the grid once.
        device: Where to compute; the CPU by default.
    """
    for part in parts:
        if part not in PARTS:
            raise UnknownNameError("part of the speed measurement", part, PARTS)
    if rounds < 1 or not networks:
        raise InputError("a measurement takes at least one round and one network.")
    place = device or torch.device("cpu")
    return [
        _unit(part, Scene(network=network, batch_size=batch_size, device=place), rounds)
        for part in PARTS
        if part in parts
        for network in (networks if part in _BOTH else networks[-1:])
    ]


def _unit(part: str, scene: Scene, rounds: int) -> Unit:
    prepare: Mapping[str, tuple[str, str, Callable[[], Round]]] = {
        "app": (PLAIN, "seconds a step", partial(steps_round, scene, CASES["app"])),
        "methods": (PLAIN, "seconds a step", partial(steps_round, scene, CASES["methods"])),
        "memory": (PLAIN, "MiB", partial(memory_round, scene)),
        "attacks": (PLAIN, "seconds an image pass", partial(attacks_round, scene)),
        "verify": (FORWARD, "seconds an image", partial(verify_round, scene)),
        "grid": (by_workers(1), "seconds a cell", grid_round),
    }
    base, value, make = prepare[part]
    settings = {
        "part": part, "network": scene.network, "batch_size": scene.batch_size,
        "clock": "wall" if part == "grid" else clock_name(scene.device), "threads": torch.get_num_threads(),
        "hardware": plain(hardware(scene.device)), "versions": plain(versions()),
    }  # fmt: skip
    if part in _BOTH:  # a case of other settings is another case
        settings["app"] = {case: repr(method) for case, method in APP_CASES.items()}
    return Unit(
        part=part, network=scene.network, base=base, value=value, rounds=1 if part in _ONCE else rounds,
        settings=settings, prepare=make,
    )  # fmt: skip


def measure_units(units: Sequence[Unit], folder: Path, *, again: bool = False) -> list[Mapping[str, Any]]:
    """Measure the rounds that are not in ``folder`` yet; return what each unit's file holds.

    Args:
        units: What to measure.
        folder: Where rounds are kept.
        again: Forget what is there.
    """
    kept: dict[str, Kept] = {unit.name: ([], {}) if again else _kept(unit, folder) for unit in units}
    total = sum(unit.rounds for unit in units)
    done = sum(min(len(rounds), unit.rounds) for unit, (rounds, _) in zip(units, kept.values(), strict=True))
    found: list[Mapping[str, Any]] = []
    with Progress("speed", total, done=done) as bar:
        for unit in units:
            rounds, started = kept[unit.name]
            measure = unit.prepare() if len(rounds) < unit.rounds else None
            if measure is not None and unit.part not in _READY:
                dict(measure(()))  # kernels are chosen, memory is allocated
            while measure is not None and len(rounds) < unit.rounds:
                for case, value in measure(started):
                    started[case] = value
                    if unit.part in _ONCE:
                        write_json(_path(unit, folder), _entry(unit, rounds, started))
                rounds.append(started)
                started = {}
                write_json(_path(unit, folder), _entry(unit, rounds, started))
                bar.advance(note=unit.name)
            bar.line(f"{unit.name}: {len(rounds)} round{'s' * (len(rounds) != 1)}")
            found.append(_entry(unit, rounds, {}))
    return found


def _entry(unit: Unit, rounds: Sequence[Mapping[str, float]], started: Mapping[str, float]) -> dict[str, Any]:
    entry = {
        "format": _FORMAT, "base": unit.base, "value": unit.value, "settings": dict(unit.settings),
        "rounds": list(rounds),
    }  # fmt: skip
    return {**entry, "started": dict(started)} if started else entry


def _path(unit: Unit, folder: Path) -> Path:
    digest = hashlib.sha256(canonical_json(plain(unit.settings))).hexdigest()
    return folder / f"{unit.name}-{digest[:12]}.json"


def _kept(unit: Unit, folder: Path) -> Kept:
    """Return the finished rounds, and the cases of one that was broken off."""
    path = _path(unit, folder)
    if not path.exists():
        return [], {}
    found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != _FORMAT or not isinstance(found.get("rounds"), list):
        return [], {}
    return list(found["rounds"]), dict(found.get("started", {}))
