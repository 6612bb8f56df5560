"""What does the user want to know, and how well? A start, a metric, a gradient, steps and a stop, chosen and certified."""

from inbounds.inference._infer import infer as infer
from inbounds.inference.certificate import Certificate as Certificate
from inbounds.inference.loading import load as load

__all__ = ["Certificate", "infer", "load"]
