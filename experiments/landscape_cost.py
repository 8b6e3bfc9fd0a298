"""What a landscape costs beside the bare forward passes it needs: `python experiments/landscape_cost.py RUN`.

Two things are timed in turns, so that other work on the machine disturbs both alike: points of the landscape as
`indelible analyze landscape` measures them (move the weights, estimate BatchNorm statistics, measure BA and WSR, keep
the point on disk, restore the weights), and bare passes: the same batches of the same images through the same network
in evaluation mode, nothing else. The whole grid is measured, point by point; bare passes are timed after every fourth
point and counted for all. What is done once (directions, preparing images) is part of the grid's cost. Times are the
processor's, not the clock's.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch

from indelible.analyze.analysis import PointLog
from indelible.analyze.marked_model import MarkedModel
from indelible.analyze.weight_landscape import LandscapeSettings, Vicinity


def bare(vicinity: Vicinity) -> None:
    """Pass all images of one point forward."""
    probe = vicinity.probe
    batches = [*probe.statistics, *(images for images, _ in (*probe.clean, *probe.marked))]
    with torch.inference_mode():
        for images in batches:
            vicinity.model(images)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of an embedding run")
    parser.add_argument("--every", type=int, default=4, help="points between two timings of bare passes (default: 4)")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    settings = LandscapeSettings(tolerance=-1)
    subject = MarkedModel.from_run(arguments.run)
    began = time.process_time()
    vicinity = Vicinity(subject, settings)
    once = time.process_time() - began
    spent, ratios, bares = 0.0, [], []
    with tempfile.TemporaryDirectory() as folder:
        points = PointLog(Path(folder), {})
        bare(vicinity)
        for number, (a, b) in enumerate(product(*settings.axes)):
            started = time.process_time()
            rates = vicinity.rates(a, b)
            points[f"{a!r}/{b!r}"] = {"ba": rates.ba, "wsr": rates.wsr}
            middle = time.process_time()
            spent += middle - started
            if number % arguments.every == 0:
                bare(vicinity)
                bares.append(time.process_time() - middle)
                ratios.append((middle - started) / bares[-1])
    needed = settings.steps**2 * statistics.mean(bares)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{vicinity.probe.passes} images a point, bare {1000 * statistics.mean(bares):.0f} ms of processor time")
    print(f"a point over bare passes: {middle:.3f} (quartiles {low:.3f} and {high:.3f}, {len(ratios)} pairs)")
    print(f"{settings.steps**2} points {spent:.0f} s, directions and images {once:.1f} s, bare {needed:.0f} s")
    print(f"the grid over bare passes: {(spent + once) / needed:.3f}")


if __name__ == "__main__":
    main()
