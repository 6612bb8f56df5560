"""Models that people can use as they are, and the parts that they are made of."""

from typing import TYPE_CHECKING

from inbounds.models.binary_network import BinaryNetwork as BinaryNetwork
from inbounds.models.binary_network import Network as Network
from inbounds.models.binary_network import binarise as binarise
from inbounds.models.binary_network import loss_and_accuracy as loss_and_accuracy
from inbounds.models.binary_network import network_posterior as network_posterior
from inbounds.models.binary_network import steps_per_epoch as steps_per_epoch
from inbounds.models.factors import FactorModel as FactorModel
from inbounds.models.nmf import BayesianNMF as BayesianNMF
from inbounds.models.rating_baselines import UserItemBias as UserItemBias
from inbounds.models.topics import LDA as LDA
from inbounds.namespaces import namespace

__all__ = [
    "LDA",
    "BayesianNMF",
    "BinaryNetwork",
    "FactorModel",
    "Network",
    "UserItemBias",
    "binarise",
    "loss_and_accuracy",
    "network_posterior",
    "steps_per_epoch",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
