"""The named data sets: one file per source, one registry."""

from indelible.base.registry import Registry
from indelible.data.sources.cifar10 import CIFAR10
from indelible.data.sources.cifar100 import CIFAR100
from indelible.data.sources.embedded import FASHION_MINI
from indelible.data.sources.mnist import FASHION_MNIST, MNIST
from indelible.data.sources.source import Place, RemoteFile, Source
from indelible.data.sources.svhn import SVHN

__all__ = ["SOURCES", "Place", "RemoteFile", "Source"]

SOURCES: Registry[Source] = Registry("data set")
for _source in (FASHION_MINI, CIFAR10, CIFAR100, SVHN, MNIST, FASHION_MNIST):
    SOURCES.add(_source)
