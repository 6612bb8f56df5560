"""Models that people can use as they are."""

from inbounds.models.binary_network import BinaryNetwork as BinaryNetwork
from inbounds.models.nmf import BayesianNMF as BayesianNMF
from inbounds.models.topics import LDA as LDA
