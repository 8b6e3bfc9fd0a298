"""Hand-made analyses, one of each kind: what figures are drawn from in tests."""

import base64

from indelible.analyze.adaptive_grid import FirstFall
from indelible.analyze.analysis import Analysis
from indelible.analyze.batchnorm_distances import Batchnorm, BatchNormSettings, Channels, LayerShift
from indelible.analyze.benchmark_curves import Curves, Line, RatePoint
from indelible.analyze.mark_pictures import Picture, Samples, SamplesSettings
from indelible.analyze.marked_model import Rates
from indelible.analyze.weight_landscape import Landscape, LandscapeSettings, Plane
from indelible_companions.analyze.dynamics import Dynamics, DynamicsSettings, Moment, Track
from indelible_companions.analyze.tsne import FeaturePanel, PanelRow, Tsne, TsneSettings

__all__ = ["ALL", "EVIL"]

EVIL = "<script>alert(1)</script> & $\\no$"


def _landscape() -> Landscape:
    wsr = ((1.0, 0.9, 0.1), (1.0, 0.8, 0.1), (0.9, 0.4, 0.0))
    plane = Plane(
        label="Vanilla", own=Rates(0.8, 0.8), reestimated=Rates(0.8, 0.8), tuned=0.05, tuned_rates=Rates(0.7, 0.5),
        cosine=0.0, wsr=wsr, ba=((0.8,) * 3,) * 3, measured=((True,) * 3,) * 3,
        adv=FirstFall(level=0.5, distance=0.0123, ba=0.7, reach=0.5),
        ft=FirstFall(level=0.5, distance=None, ba=None, reach=0.9),
        passes=9, seconds=1.0,
    )  # fmt: skip
    return Landscape(settings=LandscapeSettings(adv=(-0.1, 0.1), ft=(-0.1, 0.1), steps=3), planes=(plane, plane))


def _batchnorm() -> Batchnorm:
    layer = LayerShift(name="bn", channels=3, mean_shift=1.0, variance_ratio=2.0, distance=0.5)
    one = Channels(
        label="Vanilla", layer="bn", number=1, clean_mean=(0.0, 1.0, -1.0), clean_variance=(1.0, 2.0, 3.0),
        marked_mean=(0.5, 1.5, -0.5), marked_variance=(2.0, 2.0, 2.0), layers=(layer, layer),
    )  # fmt: skip
    return Batchnorm(settings=BatchNormSettings(), models=(one,))


def _tsne() -> Tsne:
    panel = FeaturePanel(
        title="0", clean=((0.0, 0.0), (1.0, 1.0)), marked=((0.5, 0.2),), wsr=1.0, mixed=0.5, spread=None
    )
    row = PanelRow(label="Vanilla", panels=(panel, panel, panel))
    return Tsne(settings=TsneSettings(path="tuning"), classes=("a", "b"), labels=(0, 1), target=0, models=(row,))


def _samples() -> Samples:
    pixels = base64.b64encode(bytes(range(12))).decode()
    one = Picture(row="kind", title="content", shape=(3, 2, 2), pixels=pixels, changed=0.5, rms=0.1)
    return Samples(settings=SamplesSettings(), carrier="cat", answer="dog", pictures=(one,))


def _curves() -> Curves:
    marks = tuple(
        RatePoint(x=f"{x}", at=x, wsr=x, ba=0.9, wsr_sd=0.1, ba_sd=None, seeds=2, verdicts=2, owned=1, reported_wsr=0.5)
        for x in (0.1, 0.2)
    )
    return Curves(variable="eps", lines=(Line(label="app after FT", marks=marks),))


def _dynamics() -> Dynamics:
    moments = tuple(
        Moment(phase="ft", step=step, distance=step / 100, ba=0.8, wsr=1 - step / 10, p_value=0.0, owned=step < 8)
        for step in range(10)
    )
    return Dynamics(settings=DynamicsSettings(), tracks=(Track(label=EVIL, moments=moments),))


ALL: dict[str, Analysis] = {
    one.figure: one for one in (_landscape(), _batchnorm(), _tsne(), _samples(), _curves(), _dynamics())
}
