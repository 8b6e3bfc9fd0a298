"""Load images: one file per source; splits; augmentation on tensors; batches."""

from indelible.data.catalog import fetch as fetch
from indelible.data.catalog import load as load
from indelible.data.convert import as_data as as_data
from indelible.data.images import Data as Data
from indelible.data.images import ImageData as ImageData
from indelible.data.splits import Split as Split
