"""What a landscape costs beside the bare forward passes it needs: `python tools/measure_landscape.py`.

Two things are timed in turns, so that other work on the machine disturbs both alike: points of the landscape as
`indelible analyze landscape` measures them (move the weights, estimate BatchNorm statistics, measure BA and WSR, keep
the point on disk, restore the weights), and bare passes: the same batches of the same images through the same network
in evaluation mode, nothing else. The ratio of a point is the ratio of the whole grid; what is done once (directions,
preparing images) is timed too and shared out over the points of the grid. Times are the processor's, not the clock's.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from indelible.analyze.landscape import LandscapeSettings, Vicinity
from indelible.analyze.points import Points
from indelible.analyze.subject import Subject


def bare(vicinity: Vicinity) -> None:
    """Pass all images of one point forward."""
    probe = vicinity.probe
    batches = [*probe.statistics, *(images for images, _ in (*probe.clean, *probe.marked))]
    with torch.inference_mode():
        for images in batches:
            vicinity.model(images)


def main() -> None:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="folder of an embedding run")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = LandscapeSettings(tolerance=-1)
    subject = Subject.from_run(arguments.run)
    began = time.process_time()
    vicinity = Vicinity(subject, settings)
    once = time.process_time() - began
    first, second = settings.axes
    ratios, bares = [], []
    with tempfile.TemporaryDirectory() as folder:
        points = Points(Path(folder), {})
        bare(vicinity)
        for number in range(arguments.rounds):
            a, b = first[number % settings.steps], second[(7 * number) % settings.steps]
            started = time.process_time()
            rates = vicinity.rates(a, b)
            points.add(f"{a!r}/{b!r}", {"ba": rates.ba, "wsr": rates.wsr})
            middle = time.process_time()
            bare(vicinity)
            ended = time.process_time()
            ratios.append((middle - started) / (ended - middle))
            bares.append(ended - middle)
    grid = settings.steps**2 * statistics.median(bares)
    ratio = statistics.median(ratios)
    print(f"{vicinity.probe.passes} images a point, bare {1000 * statistics.median(bares):.0f} ms of processor time")
    print(f"a point over bare passes: {ratio:.3f} ({min(ratios):.3f} - {max(ratios):.3f}, {arguments.rounds} rounds)")
    print(f"{settings.steps} x {settings.steps} grid with directions ({once:.1f} s): {ratio + once / grid:.3f}")


if __name__ == "__main__":
    main()
