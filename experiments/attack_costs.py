"""Measure what every attack costs beside FT: image passes and seconds of processor time, in both protocols.

    python experiments/attack_costs.py RUN --images 500
    python experiments/attack_costs.py RUN --images 500 --scale cpu --only ft nnl

RUN is the folder of an embedding run. Attacks get the first images of its attacker and all their usual settings: passes
grow with the number of images, so that the ratios to FT hold for more of them. Processor time is taken, on one thread,
so that other work on the machine does not count.
"""

import argparse
import json
import time
from collections.abc import Sequence

import torch

from indelible.attacks import ATTACKS, FineTuning, attack
from indelible.base.progress import silenced
from indelible.train.run_folder import Run
from indelible.train.settings import SCALES


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print one line for each attack and protocol."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run")
    options.add_argument("--images", type=int, default=500)
    options.add_argument("--scale", default="paper", choices=list(SCALES))
    options.add_argument("--protocols", nargs="+", default=["sound", "paper"], choices=["sound", "paper"])
    options.add_argument("--only", nargs="+", default=list(ATTACKS), choices=list(ATTACKS))
    chosen = options.parse_args(argv)
    torch.set_num_threads(1)
    victim = Run.load(chosen.run)
    data = victim.images()[1]
    data = data.subset(torch.arange(min(chosen.images, len(data))))
    model = victim.model()
    with silenced():
        attack(model, data, FineTuning(epochs=1), device="cpu")  # the first run loads what later ones find loaded
        for protocol in chosen.protocols:
            for name in chosen.only:
                began = time.process_time()
                value = ATTACKS[name].build.at_scale(chosen.scale, protocol=protocol)
                passes = attack(model, data, value, device="cpu").record.images
                seconds = time.process_time() - began
                row = {"attack": name, "protocol": protocol, "scale": chosen.scale, "attacker_images": len(data)}
                print(json.dumps({**row, "passes": passes, "processor_seconds": round(seconds, 2)}), flush=True)


if __name__ == "__main__":
    main()
