"""Special functions behind the transforms, as short polynomials that XLA fuses: no loops, no branches.

Each approximation has one set of coefficients for single and one for double precision. They were computed here, with
60-digit arithmetic, by interpolation at Chebyshev nodes; those of Ein, the Mills ratio, arctan and 1 - e^-x in single precision
have the least largest relative error of what they serve for instead (Lawson's iteration). They are written in powers of a variable of about
the size of 1, where sums of powers are stable, unless it says otherwise. Truncation errors are about 1e-7 at most (single) and below 3e-15
(double), relative, unless it says otherwise.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array

from inbounds.engine.elementary import exponential, one_minus_exp, polynomial, reciprocal
from inbounds.engine.plain import lowest_exponent, precision

__all__ = [
    "arctan_over",
    "doubly_exponential",
    "ein_of_exp",
    "log_mills_defect",
    "log_normal_density",
    "mills",
    "mills_defect",
    "mills_over_defect",
    "normal_density",
]

LOG_SQRT_TWO_PI = 0.5 * math.log(2 * math.pi)
EULER_GAMMA = 0.577215664901532861

# Ein(x) / x for x in [0, EIN_END] in single precision: a quotient of sums of powers of x. Beyond, E1(x) is less than the last place of Ein(x).
EIN_END = 13.0
EIN_NUMERATOR = (0.9999999894, 0.2345851016, 0.03701179030, 2.742748951e-3, 6.342436461e-5)
EIN_DENOMINATOR = (1.0, 0.4845847824, 0.1026039924, 0.01188605931, 7.187848986e-4, 1.016819825e-5)

# In double precision Ein(x) / x for x in [0, EIN_SPLIT], in powers of 2 x / EIN_SPLIT - 1,
EIN_SPLIT = 8.0
EIN_OVER_X = (
    0.491822344607818096, -0.246401254330001534, 0.132848528635460487, -0.0693571374315971097,
    0.0339490199545097900, -0.0153908667133314669, 6.43796617307472846e-3, -2.48532408898477443e-3,
    8.87398594043452253e-4, -2.93969848818219720e-4, 9.06637865815900030e-5, -2.61236788986447361e-5,
    7.05637991910030039e-6, -1.79252889217731974e-6, 4.29572678423317435e-7, -9.74657308002490289e-8,
    2.09528494455893502e-8, -4.21915460816321206e-9, 8.23878935826654336e-10, -1.81827365299011105e-10,
    3.19492447797643807e-11,
)  # fmt: skip

# and e^x E1(x) for x = e^p from there on, in powers of p, to the precision that is left once e^-x multiplies it.
SCALED_E1 = (
    0.596863086559144482, -0.405847714407743542, 0.100578619761850033, -7.90835788943015356e-3,
    1.40755127614588376e-3, -1.84083923041635553e-3, 7.74502694749739158e-4, -1.67293072976029510e-4,
    2.08943167781289846e-5, -1.45272167675871066e-6, 4.40042860130706733e-8,
)  # fmt: skip

# (x + 4) m(x) and (x + 4)^2 (1 - x m(x)), m the Mills ratio, x >= 0, in powers of (x - 4) / (x + 4). In single precision exact at 0, where
# the two halves of `Probit` meet, for which the centre must be a power of two.
MILLS_CENTRE = 4.0
MILLS = {
    "single": (
        1.893218994, -1.523770251, 0.9704107887, -0.4675546560, 0.1513837105, -0.01882269234, -8.704861573e-3,
        3.907180780e-3, 3.195851840e-4, -3.878732189e-4,
    ),
    "double": (
        1.89321906330848536, -1.52377091081998348, 0.970409554867587437, -0.467540962998329239, 0.151391762312489091,
        -0.0189004508617946100, -8.72229527511348608e-3, 4.08785568219403988e-3, 3.34244624475829242e-4,
        -5.79269311238379759e-4, -4.78331121841109768e-6, 8.80957579245832169e-5, 1.79656665407662735e-6,
        -1.48433472531921452e-5, -1.57916936225082985e-6, 2.56887413653775248e-6, 6.83601668020292224e-7,
        -4.00626290960091491e-7, -2.18409906633606321e-7, 4.48232069850052401e-8, 5.41542671811599221e-8,
        -1.50924181861418314e-9, -9.52027911440145720e-9, -2.94330987616345352e-10, 8.81253404162449497e-10,
    ),
}  # fmt: skip
MILLS_DEFECT = {
    "single": (
        3.416989925, -4.988360876, 4.313855135, -2.475734906, 0.8514184807, -0.06102160464, -0.08948199713,
        0.02982152883, 7.827925844e-3, -5.324274900e-3, -6.095080703e-4, 6.201797252e-4,
    ),
    "double": (
        3.41698997412846832, -4.98836093137515625, 4.31385155359791214, -2.47573090124191023, 0.851461065863097733,
        -0.0610689335579623410, -0.0896710565346875548, 0.0300288889455044033, 8.22162370832078171e-3,
        -5.74486342042037107e-3, -1.02165939902607400e-3, 1.03560502022322757e-3, 2.16279289811145982e-4,
        -1.85739083198894188e-4, -6.21213820486621131e-5, 3.02375164527824949e-5, 1.82662969962732355e-5,
        -3.36564942085958977e-6, -4.81947837955814875e-6, -1.23641123132350725e-7, 1.04243079182857554e-6,
        1.49929890041732645e-7, -1.61777893338698200e-7, -2.34428788559028141e-8, 1.32566370065403088e-8,
    ),
}  # fmt: skip

# arctan(z) / z for z in [0, 1], in powers of 2 z^2 - 1. In single precision exact at 1, where the halves of `Arctan` meet.
ARCTAN = {
    "single": (
        0.8704196606, -0.1018764542, 0.02085466594, -5.032073487e-3, 1.302056681e-3, -3.564269857e-4, 1.226460426e-4,
        -3.591115309e-5,
    ),
    "double": (
        0.870419751367103197, -0.101876542350218189, 0.0208518512071081189, -5.03086366025007098e-3,
        1.31558594962926364e-3, -3.60982087053795819e-4, 1.02276561124576490e-4, -2.96500407272727357e-5,
        8.74493865928441031e-6, -2.61407265874430181e-6, 7.89864310149284452e-7, -2.40799707587060044e-7,
        7.39467031812140001e-8, -2.28061279122041161e-8, 7.08474938833762073e-9, -2.26824787888347391e-9,
        7.11146179983452825e-10, -1.78406168467464318e-10, 5.61447832714239113e-11, -3.78782221440808687e-11,
        1.20460304550909288e-11,
    ),
}  # fmt: skip


def doubly_exponential(p: Array) -> tuple[Array, Array]:
    """p and x = e^p, both held where x and e^-x are normal numbers."""
    lowest = lowest_exponent(p.dtype)
    p = jnp.clip(p, lowest, math.log(-lowest))
    return p, exponential(p)


def ein_of_exp(p: Array) -> Array:
    """Ein(e^p), Ein(x) = gamma + log x + E1(x) (Abramowitz & Stegun, 5.1.39).

    In single precision a quotient up to where E1 is lost in rounding: one division in the place of one more exponential. In double
    precision the entire function Ein(x) / x is a polynomial up to a few units in x; beyond, e^x E1(x) is one in p. The e^-x is that of f'.
    """
    held, x = doubly_exponential(p)
    if precision(p.dtype) == "single":
        near = x * polynomial(EIN_NUMERATOR, x) * reciprocal(polynomial(EIN_DENOMINATOR, x))
        return jnp.where(x < EIN_END, near, p + EULER_GAMMA)
    near = x * polynomial(EIN_OVER_X, x * (2 / EIN_SPLIT) - 1)
    e1 = one_minus_exp(x)[1] * polynomial(SCALED_E1, held)
    return jnp.where(x < EIN_SPLIT, near, p + (EULER_GAMMA + e1))


def arctan_over(z: Array) -> Array:
    """arctan(z) / z for z in [0, 1]. XLA's own arctan is not vectorised on CPUs."""
    return polynomial(ARCTAN[precision(z.dtype)], 2 * z * z - 1)


def normal_density(x: Array) -> Array:
    """n(x) = exp(-x^2 / 2) / sqrt(2 pi), to full relative precision, held where it is a normal number.

    exp(-x^2 / 2) of the rounded square would lose x^2 / 2 units in the last place. Rounding x to a grid first makes one
    square exact; what is left is small.
    """
    limit = math.sqrt(-2 * lowest_exponent(x.dtype))
    grid = 2.0**20 if precision(x.dtype) == "double" else 2.0**8
    x = jnp.minimum(jnp.abs(x), limit)
    coarse = jnp.round(x * grid) * (1 / grid)
    return exponential(-0.5 * coarse * coarse, -0.5 * (x - coarse) * (x + coarse)) * (1 / math.sqrt(2 * math.pi))


def _mills_variable(x: Array) -> tuple[Array, Array]:
    weight = reciprocal(x + MILLS_CENTRE)
    return weight, 1 - (2 * MILLS_CENTRE) * weight


def mills(x: Array) -> Array:
    """The Mills ratio m(x) = Phi(-x) / n(x), x >= 0."""
    weight, s = _mills_variable(x)
    return weight * polynomial(MILLS[precision(x.dtype)], s)


def mills_defect(x: Array) -> Array:
    """1 - x m(x), x >= 0, without the cancellation: it falls like 1 / x^2."""
    weight, s = _mills_variable(x)
    return weight * (weight * polynomial(MILLS_DEFECT[precision(x.dtype)], s))


def mills_over_defect(x: Array) -> Array:
    """m(x) / (1 - x m(x)), x >= 0, which grows like x."""
    weight, s = _mills_variable(x)
    kind = precision(x.dtype)
    return polynomial(MILLS[kind], s) * reciprocal(weight * polynomial(MILLS_DEFECT[kind], s))


def log_mills_defect(x: Array) -> Array:
    """log(1 - x m(x)), x >= 0."""
    weight, s = _mills_variable(x)
    return 2 * jnp.log(weight) + jnp.log(polynomial(MILLS_DEFECT[precision(x.dtype)], s))


def log_normal_density(x: Array) -> Array:
    """log n(x), held finite where the square would overflow."""
    x = jnp.minimum(jnp.abs(x), math.sqrt(float(jnp.finfo(x.dtype).max)) / 2)
    return -0.5 * x * x - LOG_SQRT_TWO_PI
