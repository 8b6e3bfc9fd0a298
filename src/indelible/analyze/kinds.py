"""All kinds of analyses by name, and how to read one back from its folder."""

from collections.abc import Mapping
from pathlib import Path

from indelible.analyze.batchnorm import Batchnorm
from indelible.analyze.curves import Curves
from indelible.analyze.document import ANALYSIS, Analysis
from indelible.analyze.dynamics import Dynamics
from indelible.analyze.frontier import Frontier
from indelible.analyze.landscape import Landscape
from indelible.analyze.samples import Samples
from indelible.analyze.tsne import Tsne
from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_json

__all__ = ["ANALYSES", "read_analysis"]

ANALYSES: Mapping[str, type[Analysis]] = {
    kind.figure: kind for kind in (Landscape, Batchnorm, Tsne, Samples, Curves, Dynamics, Frontier)
}


def read_analysis(folder: str | Path) -> Analysis:
    """Read the analysis in ``folder``.

    Raises:
        InputError: There is none.
        DamagedFileError: It is not one that this version reads.
    """
    path = Path(folder) / ANALYSIS
    if not path.is_file():
        raise InputError(
            f"{folder} holds no finished analysis. Make one: indelible analyze landscape RUN --out {folder}"
        )
    found = read_json(path)
    name = str(found.get("figure")) if isinstance(found, Mapping) else ""
    if name not in ANALYSES:
        raise DamagedFileError(f"{path} is of an unknown kind ({name!r}). Make it again with this version.")
    return ANALYSES[name].from_json(found)
