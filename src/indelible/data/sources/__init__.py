"""The named data sets: one file per source, one registry."""

from indelible.base.registry import Registry
from indelible.data.sources.embedded import FASHION_MINI
from indelible.data.sources.source import Place, RemoteFile, Source

__all__ = ["SOURCES", "Place", "RemoteFile", "Source"]

SOURCES: Registry[Source] = Registry("data set")
for _source in (FASHION_MINI,):
    SOURCES.add(_source)
