"""The plan of a session: how many samples and decoys are asked where every query costs, fixed before the first one.

:mod:`indelible.verification.planner` says how many hits a null rate takes. Here that becomes all that a test asks:

| test | the key's samples | decoys |
|---|---|---|
| ``codebook`` | every mark on as many carriers as the wanted power takes | none |
| ``keyed`` | n with the wanted power at a null rate of 1/(K - 1) | none |
| ``binomial`` | n with the wanted power at the floor of the null rate | m samples of each decoy key |
| ``sequential`` | at most n; on average fewer | none with a codebook; else as ``binomial``, once the level is reached |

m is the fewest for which the limits of all decoys stay below the floor, if the suspect answers each with the key's
label at the rate ``decoy_rate``. A suspect that does so more often can then not be told from one that reads any mark,
and the verdict is negative, never wrong. All is exact: binomial tails, and for the e-process the chance of ever having
reached the level, by recursion over the hits. Only a codebook is planned by simulation.

| symbol | name | default | source |
|---|---|---|---|
| w | ``wsr`` | 0.7; 0.5 with keyed labels; 0.1 with a codebook | ours: what an attack may have left |
| power | ``power`` | 0.99 | ours |
| r | ``decoy_rate`` | 0.2 | ours |
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from indelible.base.checks import check_settings
from indelible.base.errors import DamagedFileError, InputError
from indelible.base.records import JsonFields
from indelible.keys.key import Key
from indelible.verification.findings import MISS_SHARE
from indelible.verification.planner import codebook_plan, codebook_power, needed_hits, plan, power_of
from indelible.verification.procedures import procedure_for
from indelible.verification.statistics.exact_tests import FLOOR, binomial_tail, keyed_rate
from indelible.verification.statistics.sequential import log_e_value
from indelible.verification.suspect_queries import DECOYS

_WSR = {"codebook": 0.1, "fixed": 0.7, "keyed": 0.5, "untargeted": 0.7}
_POWER = 0.99
_DECOY_RATE = 0.2
# Of the chance to miss a verdict, the share that decoys with unlucky limits may have.
_DECOY_SHARE = 0.1
_MOST_DECOY_SAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class SessionPlan(JsonFields):
    """What a session asks, at most, and the power that this gives if the suspect answers as was planned for.

    ``queries`` are all together: ``samples`` of the key, ``decoy_samples`` of each of ``decoys`` keys, and ``clean``
    images without a mark, for BA. ``wsr`` and ``decoy_rate`` (0 without decoys) are what was planned for.
    """

    test: str
    samples: int
    decoys: int
    decoy_samples: int
    clean: int
    queries: int
    power: float
    wsr: float
    decoy_rate: float
    null_rate: float
    alpha: float

    @property
    def sentence(self) -> str:
        """The plan in words."""
        most = "at most " if self.test == "sequential" else ""
        decoys = f", {self.decoys} decoy keys of {self.decoy_samples} samples" if self.decoys else ""
        clean = f", {self.clean} clean images" if self.clean else ""
        return (
            f"plan: {most}{self.samples} samples of the key{decoys}{clean}: {self.queries} queries. A suspect with a "
            f"WSR of {100 * self.wsr:g} % gets its verdict at alpha {self.alpha:g} with probability {self.power:.3f}."
        )

    @property
    def options(self) -> dict[str, Any]:
        """The plan as options of :func:`indelible.verify`."""
        numbers = {"test": self.test, "alpha": self.alpha, "queries": self.samples}
        return numbers | ({"decoys": self.decoys, "decoy_samples": self.decoy_samples} if self.decoys else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SessionPlan":
        """Rebuild a plan, as a query log holds it."""
        try:
            check_settings(cls, value, "field of a plan")
            return cls(**value)
        except (InputError, TypeError) as error:
            raise DamagedFileError("this is not the plan of a session. Ask anew, with another log.") from error


def session_plan(
    key: Key, available: int, *, test: str = "auto", alpha: float = 1e-6, wsr: float | None = None,
    power: float = _POWER, decoy_rate: float = _DECOY_RATE, decoys: int | None = None, samples: int | None = None,
    decoy_samples: int | None = None, clean: int = 0, wrong: float = 0.0,
) -> SessionPlan | None:  # fmt: skip
    """Return what to ask; None for the tests ``decoys`` and ``paired``, which ask all there is.

    Of the key, ``available`` samples are there; where more are needed, all are asked, and ``power`` says less.
    ``samples`` and ``decoy_samples`` take the place of what the plan would give. ``wrong`` is, of a codebook, the share
    of misses that the suspect answers with a wrong class. The other settings are those of the module's header.
    """
    name = procedure_for(test, key).name
    if name not in {"codebook", "keyed", "binomial", "sequential"}:
        return None
    for what, value in (("alpha", alpha), ("power", power)):
        if not 0.0 < value < 1.0:
            raise InputError(f"{what} must lie between 0 and 1, got {value}.")
    if not 0.0 <= decoy_rate < 1.0:
        raise InputError(f"a decoy rate lies in [0, 1), got {decoy_rate}.")
    if any(number is not None and number < 1 for number in (available, decoys, samples, decoy_samples)):
        raise InputError("samples, decoys and decoy_samples must be at least 1.")
    if samples is not None and samples > available:
        raise InputError(f"the key has {available} samples, got {samples}. Give a smaller number.")
    rate, count, each, sure = _WSR[key.labels] if wsr is None else wsr, 0, 0, 1.0
    if key.labels == "codebook":
        null = 1.0 / key.classes
        asked, reached = _stamped(key, name, rate, alpha, power, available, samples, wrong)
    else:
        null, level = FLOOR, alpha * (1.0 - MISS_SHARE)
        if key.labels == "keyed":
            null, level = keyed_rate(key.classes, with_truth=key.kind != "unrelated"), alpha
        else:
            count = DECOYS if decoys is None else decoys
            miss, wanted = alpha * MISS_SHARE / count, 1.0 - _DECOY_SHARE * (1.0 - power)
            each = min(available, decoy_samples or decoy_samples_for(decoy_rate, count, miss, power=wanted))
            sure = _within(each, decoy_rate, miss) ** count
        if not null < rate <= 1.0:
            raise InputError(
                f"a WSR of {rate} cannot be told from a null rate of {null:.3f}: plan for a larger one, at most 1."
            )
        asked, reached = _samples(name, rate, null, level, min(0.9999, power / max(sure, power)), available, samples)
    return SessionPlan(
        test=name, samples=asked, decoys=count, decoy_samples=each, clean=clean,
        queries=asked + count * each + clean, power=reached * sure, wsr=rate,
        decoy_rate=decoy_rate if count else 0.0, null_rate=null, alpha=alpha,
    )  # fmt: skip


def _stamped(
    key: Key, name: str, wsr: float, alpha: float, power: float, available: int, given: int | None, wrong: float
) -> tuple[int, float]:  # fmt: skip
    """Return how many samples of a codebook are asked, as many of each mark, and the power that this gives."""
    marks = key.marks or 1
    most = (available if given is None else given) // marks
    if most < 1:
        raise InputError(
            f"a codebook asks every one of its {marks} marks: at least {marks} queries, got "
            f"{available if given is None else given}. Allow more."
        )
    settings: dict[str, Any] = {
        "wsr": wsr, "classes": key.classes, "marks": marks, "alpha": alpha, "wrong": wrong,
        "sequential": name == "sequential",
    }  # fmt: skip
    if given is None:
        found = codebook_plan(power=power, **settings)
        if found.carriers <= most:
            return found.queries, found.power
    return most * marks, codebook_power(most, **settings)


def _samples(
    name: str, wsr: float, null: float, level: float, power: float, available: int, given: int | None
) -> tuple[int, float]:
    """Return how many key samples are asked, and the power that this gives."""
    most = available if given is None else given
    if name == "sequential":
        reached = sequential_power(most, wsr=wsr, null_rate=null, alpha=level)
        enough = [number for number, chance in enumerate(reached, 1) if chance >= power]
        asked = enough[0] if enough and given is None else most
        return asked, reached[asked - 1]
    if given is None:
        most = min(most, plan(wsr, alpha=level, power=power, null_rate=null).queries)
    return most, power_of(most, wsr=wsr, null_rate=null, alpha=level)


def sequential_power(most: int, *, wsr: float, null_rate: float, alpha: float) -> list[float]:
    """Return the chance that the e-process has reached 1 / alpha within 1, 2, ... ``most`` queries, exactly."""
    going, reached, need, found = np.ones(1), 0.0, 0, []
    for trials in range(1, most + 1):
        # The chance of 0, 1, ... hits by now without having reached the level before.
        going = np.append(going * (1.0 - wsr), 0.0) + np.append(0.0, going * wsr)
        while need <= trials and log_e_value(need, trials, null_rate) < -math.log(alpha):
            need += 1  # rises with the trials
        reached += float(going[need:].sum())
        going[need:] = 0.0
        found.append(reached)
    return found


def decoy_samples_for(decoy_rate: float, decoys: int, miss: float, *, power: float) -> int:
    """Return the fewest samples of each decoy key for which all limits stay at the floor with probability ``power``.

    The suspect answers decoys with the key's label at ``decoy_rate``; ``miss`` is the chance that one limit is too low.
    """
    for count in range(1, _MOST_DECOY_SAMPLES):
        if _within(count, decoy_rate, miss) ** decoys >= power:
            return count
    return _MOST_DECOY_SAMPLES


def _within(count: int, rate: float, miss: float) -> float:
    """Return the chance that the limit of a decoy with ``count`` samples is at most the floor."""
    # The limit at some hits is at most the floor if P[Bin(count, floor) <= hits] <= miss, that is, by symmetry of a
    # floor of one half, if so many misses are as unlikely.
    misses = needed_hits(count, 1.0 - FLOOR, miss)
    return 0.0 if misses is None else binomial_tail(misses, count, 1.0 - rate)
