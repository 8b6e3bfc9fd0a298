"""Load images: one file per source; splits; augmentation on tensors; batches."""

from indelible.data.catalog import fetch, load
from indelible.data.convert import as_data
from indelible.data.images import Data, ImageData
from indelible.data.splits import Split

__all__ = ["Data", "ImageData", "Split", "as_data", "fetch", "load"]
