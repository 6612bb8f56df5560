"""The transforms from their definitions alone, in 100-digit arithmetic: what the tests compare against.

About half of the digits go into cancellation, so that at least 50 are right.
"""

import mpmath
from mpmath import mpf

mpmath.mp.dps = 100

ROOT_TWO = mpmath.sqrt(2)


def normal_density(p):
    return mpmath.exp(-p * p / 2) / mpmath.sqrt(2 * mpmath.pi)


def normal_tail(x):
    """Phi(-x)."""
    return mpmath.erfc(x / ROOT_TWO) / 2


def ein(x):
    if x < 1:
        return sum((-1) ** (k + 1) * x**k / (k * mpmath.factorial(k)) for k in range(1, 40))
    return mpmath.log(x) + mpmath.euler + mpmath.e1(x)


def integrated_probit(p):
    """p Phi + n, which cancels below 0."""
    return p * normal_tail(-p) + normal_density(p)


# name -> f, f', f''/f', 1 - f', on (0, inf)
POSITIVE = {
    "exp": (mpmath.exp, mpmath.exp, lambda p: mpf(1), lambda p: 1 - mpmath.exp(p)),
    "softplus": (
        lambda p: mpmath.log1p(mpmath.exp(p)),
        lambda p: 1 / (1 + mpmath.exp(-p)),
        lambda p: 1 / (1 + mpmath.exp(p)),
        lambda p: 1 / (1 + mpmath.exp(p)),
    ),
    "icll": (
        lambda p: ein(mpmath.exp(p)),
        lambda p: -mpmath.expm1(-mpmath.exp(p)),
        lambda p: mpmath.exp(p) / mpmath.expm1(mpmath.exp(p)),
        lambda p: mpmath.exp(-mpmath.exp(p)),
    ),
    "integrated_probit": (
        integrated_probit,
        lambda p: normal_tail(-p),
        lambda p: normal_density(p) / normal_tail(-p),
        normal_tail,
    ),
}

# name -> f(-m) = 1 - f(m) for any m, f', f''/f', on (0, 1)
INTERVAL = {
    "sigmoid": (
        lambda m: 1 / (1 + mpmath.exp(m)),
        lambda p: 1 / (2 + mpmath.exp(p) + mpmath.exp(-p)),
        lambda p: -mpmath.tanh(p / 2),
    ),
    "arctan": (
        lambda m: mpmath.atan2(1, m) / mpmath.pi,
        lambda p: 1 / (mpmath.pi * (1 + p * p)),
        lambda p: -2 * p / (1 + p * p),
    ),
    "softsign": (
        lambda m: 1 / (2 * (1 + m)) if m >= 0 else 1 - 1 / (2 * (1 - m)),
        lambda p: 1 / (2 * (1 + abs(p)) ** 2),
        lambda p: -2 * mpmath.sign(p) / (1 + abs(p)),
    ),
    "probit": (normal_tail, normal_density, lambda p: -p),
}


def quantities(name, p):
    """theta, f', f''/f', log f', log theta, log(1 - theta) (0 on half lines), all on the unit support, at p."""
    p = mpf(float(p))
    if name in POSITIVE:
        value, derivative, slope, rest = (function(p) for function in POSITIVE[name])
        log_derivative = mpmath.log1p(-rest) if 0 < rest < 0.5 else mpmath.log(derivative)
        return value, derivative, slope, log_derivative, mpmath.log(value), mpf(0)
    tail, derivative, slope = INTERVAL[name]
    below, above = tail(-p), tail(p)
    return below, derivative(p), slope(p), mpmath.log(derivative(p)), mpmath.log(below), mpmath.log(above)


def basis(size):
    """A reflection that takes the last axis to the diagonal, without its last column: orthonormal, each column with sum 0."""
    mirror = mpmath.matrix([1 / mpmath.sqrt(size)] * size)
    mirror[size - 1] += 1
    reflection = mpmath.eye(size) - 2 * mirror * mirror.T / (mirror.T * mirror)[0]
    return reflection[:, : size - 1]


def log_ratios(phi):
    """theta, log theta and log |det J| with respect to all components but the last, of softmax(B phi)."""
    size = len(phi) + 1
    logits = basis(size) * mpmath.matrix([mpf(float(p)) for p in phi])
    weights = [mpmath.exp(x) for x in logits]
    theta = [w / sum(weights) for w in weights]
    softmax = mpmath.matrix(size, size)
    for i in range(size):
        for j in range(size):
            softmax[i, j] = theta[i] * ((i == j) - theta[j])
    jacobian = (softmax * basis(size))[: size - 1, :]
    return theta, [mpmath.log(t) for t in theta], mpmath.log(abs(mpmath.det(jacobian)))
