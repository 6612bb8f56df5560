"""What the library holds its own transforms, kernels and gradients to, for those of your own.

Each function raises an `AssertionError` that says what is wrong and with what consequence; it needs no test runner.
"""

from typing import TYPE_CHECKING

from inbounds.namespaces import namespace

from ._gradients import check_gradient as check_gradient
from ._kernels import check_kernel as check_kernel
from ._transforms import check_transform as check_transform

__all__ = ["check_gradient", "check_kernel", "check_transform"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
