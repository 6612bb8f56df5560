"""Digits drawn by this library: an MNIST-like task without a download, for tests, demos and first steps.

Each image is a glyph of a 5 x 7 font, moved, turned, sheared, scaled and blurred at random, with noise on the grey values.
"""

from __future__ import annotations

import numpy as np

from inbounds.data.images import Part

__all__ = ["synthetic_digits"]

GLYPHS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)


def synthetic_digits(rows: int, seed: int = 0, size: int = 28, noise: float = 0.1) -> Part:
    """`rows` images of `size` x `size` grey values in [0, 1], flattened, float32, with labels 0 to 9.

    Args:
        rows: how many.
        seed: the same seed draws the same images.
        size: pixels per side, at least 8.
        noise: standard deviation of the noise on each grey value.

    Returns:
        Images and their labels.

    Raises:
        ValueError: there are too few rows or pixels, or the noise is negative.

    Example:
        >>> ib.data.synthetic_digits(10).x.shape
        (10, 784)
    """
    if rows < 1 or size < 8 or not noise >= 0:
        raise ValueError(f"synthetic_digits needs rows >= 1, size >= 8 and noise >= 0; got {rows}, {size}, {noise}.")
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, rows).astype(np.int32)
    images = np.empty((rows, size * size), np.float32)
    for first in range(0, rows, 1_024):
        part = slice(first, first + 1_024)
        images[part] = _draw(rng, labels[part], size)
    images += rng.normal(0.0, noise, images.shape).astype(np.float32)
    return Part(np.clip(images, 0.0, 1.0), labels)


def _draw(rng: np.random.Generator, labels: np.ndarray, size: int) -> np.ndarray:
    """Look up each pixel of each image in its glyph, through a random affine map."""
    count = len(labels)
    angle, shear = rng.normal(0.0, 0.15, count), rng.normal(0.0, 0.15, count)
    scale = rng.uniform(0.85, 1.15, (count, 2)) * 0.32 * size
    centre = (size - 1) / 2 + rng.normal(0.0, 0.04 * size, (count, 2))
    grid = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"), axis=-1).reshape(-1, 2)
    row, column = np.moveaxis((grid[None] - centre[:, None]) / scale[:, None], -1, 0)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    row, column = cos * row + sin * column, cos * column - sin * row
    column = column + shear[:, None] * row
    return _bilinear(_glyphs()[labels], 3 * row + 5, 3 * column + 4).astype(np.float32)


def _glyphs() -> np.ndarray:
    """(10, 11, 9): the font with an empty frame two cells wide, so that lookups outside find 0."""
    font = np.array([[[int(c) for c in line] for line in glyph.split()] for glyph in GLYPHS], float)
    return np.pad(font, ((0, 0), (2, 2), (2, 2)))


def _bilinear(glyphs: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    row, column = np.clip(row, 0, glyphs.shape[1] - 1.001), np.clip(column, 0, glyphs.shape[2] - 1.001)
    top, left = row.astype(int), column.astype(int)
    down, right = row - top, column - left
    image = np.arange(len(glyphs))[:, None]
    upper = glyphs[image, top, left] * (1 - right) + glyphs[image, top, left + 1] * right
    lower = glyphs[image, top + 1, left] * (1 - right) + glyphs[image, top + 1, left + 1] * right
    result: np.ndarray = upper * (1 - down) + lower * down
    return result
