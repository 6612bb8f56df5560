"""How a device does a step.

What a step is says the mathematics (transforms, gradients, kernels), which knows no device. The engine has the few things of which the
best form depends on one: normals (`normal`, `normal_like`), elementary functions (`engine.elementary`), arrays (`here().elementwise`,
`.table`, `.row_sums`, `.outer`), and the loop over steps (`engine.program`). `plain.py` defines each result in plain XLA; `cpu.py` and
`gpu.py` make the same faster, and the tests hold them to it. `triton/` is a plug-in: without that folder XLA does its work.
"""

from inbounds.engine.normals import normal as normal
from inbounds.engine.normals import normal_like as normal_like
from inbounds.engine.plain import Plain as Plain
from inbounds.engine.platform import here as here
from inbounds.engine.platform import on as on

__all__ = ["Plain", "here", "normal", "normal_like", "on"]
