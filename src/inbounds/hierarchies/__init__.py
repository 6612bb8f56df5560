"""Hierarchies at scale: the effects of groups are integrated out, so that a row of a posterior is a group."""

from inbounds.hierarchies.marginal import Marginal as Marginal

__all__ = ["Marginal"]
