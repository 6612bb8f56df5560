"""Networks of one-bit weights: in memory, on disk, and their predictions. NumPy only.

This module imports nothing but NumPy and the standard library, so that a device that only predicts can take this one file.
The format is described in `docs/binary-networks.md`.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PackedNetworks", "read", "write_whole"]

MAGIC = b"IBNET\x00\x00\x01"  # the last byte is the version
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "hardtanh": lambda x: np.clip(x, -1, 1),
}


@dataclass(frozen=True)
class PackedNetworks:
    """Binary networks that predict together, one bit a weight.

    Args:
        bits: (networks, bytes), each row the weights of all layers in C order, 1 for +1 and 0 for -1, first weight in the
            highest bit of the first byte.
        layers: widths: inputs, hidden units, outputs.
        activation: of the hidden units.
        logit_scale: what the outputs are multiplied with before softmax.
        intercepts: values of the constant inputs that every layer sees beside its own, in units of the square root
            of its number of inputs; empty for none.
        center, scale: inputs enter as (x - center) / scale; one number each, or one an input.
        classes: label of each output.
    """

    bits: np.ndarray
    layers: tuple[int, ...]
    activation: str
    logit_scale: float
    intercepts: tuple[float, ...]
    center: np.ndarray
    scale: np.ndarray
    classes: np.ndarray

    def __len__(self) -> int:
        return len(self.bits)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shape of each layer's weights, constant inputs included."""
        extra = len(self.intercepts)
        return [(fan_in + extra, out) for fan_in, out in zip(self.layers[:-1], self.layers[1:], strict=True)]

    @property
    def num_weights(self) -> int:
        """How many weights a network has."""
        return sum(rows * columns for rows, columns in self.shapes)

    def weights(self, network: int) -> list[np.ndarray]:
        """The layers of one network, as float32 of -1 and +1."""
        signs = np.unpackbits(self.bits[network], count=self.num_weights).astype(np.float32) * 2 - 1
        layers, start = [], 0
        for rows, columns in self.shapes:
            layers.append(signs[start : start + rows * columns].reshape(rows, columns))
            start += rows * columns
        return layers

    def predict_proba(self, x: np.ndarray, rows: int = 8_192) -> np.ndarray:
        """Mean over the networks of their softmax outputs, (rows, classes)."""
        x = np.asarray(x)
        mean = np.zeros((len(x), self.layers[-1]))
        for network in range(len(self)):
            weights = self.weights(network)
            for first in range(0, len(x), rows):
                part = slice(first, first + rows)
                mean[part] += _softmax(self._logits(weights, x[part]))
        return mean / len(self)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The most probable class of each row."""
        result: np.ndarray = self.classes[np.argmax(self.predict_proba(x), axis=1)]
        return result

    def _logits(self, weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
        x = ((x - self.center) / self.scale).astype(np.float32)
        for depth, layer in enumerate(weights):
            fan_in = x.shape[1]
            if depth:
                x = ACTIVATIONS[self.activation](x)
            total = x @ layer[:fan_in]
            for value, row in zip(self.intercepts, layer[fan_in:], strict=True):
                total += np.float32(value * np.sqrt(fan_in)) * row
            x = total / np.float32(np.sqrt(fan_in))
        return x * np.float32(self.logit_scale)

    def check(self) -> None:
        """Raise a ValueError where the parts do not fit together: what was read from a file may be anything."""
        if len(self.layers) < 2 or not all(map(_is_size, self.layers)):
            raise ValueError(f"layers of widths {self.layers}")
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            raise ValueError(f"an unknown activation {self.activation!r}")
        if not all(map(_is_number, (self.logit_scale, *self.intercepts))):
            raise ValueError(f"a logit scale {self.logit_scale!r} and intercepts {self.intercepts}")
        if self.bits.dtype != np.uint8 or self.bits.ndim != 2 or self.bits.shape[1] != -(-self.num_weights // 8):
            raise ValueError(f"{self.bits.shape} bytes for networks of {self.num_weights:,} weights")
        for name, array in (("center", self.center), ("scale", self.scale)):
            if array.dtype.kind != "f" or array.size not in (1, self.layers[0]) or not np.all(np.isfinite(array)):
                raise ValueError(f"a {name} of {array.dtype}, shape {array.shape}, for {self.layers[0]} inputs")
        if np.any(self.scale == 0):
            raise ValueError("a scale of zero")
        if self.classes.ndim != 1 or len(self.classes) != self.layers[-1] or self.classes.dtype.kind not in "biufU":
            raise ValueError(
                f"classes of {self.classes.dtype}, shape {self.classes.shape}, for {self.layers[-1]} outputs"
            )

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the one-bit format; the file appears whole or not at all."""
        header = {
            "layers": list(self.layers),
            "activation": self.activation,
            "logit_scale": float(self.logit_scale),
            "intercepts": [float(value) for value in self.intercepts],
            "networks": len(self),
            "inputs": int(np.size(self.center)),
            "classes": self.classes.tolist(),
        }
        text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
        text += b" " * (-(len(text) + len(MAGIC) + 4) % 8)
        content = MAGIC + struct.pack("<I", len(text)) + text
        for array in (self.center, self.scale):
            content += np.asarray(array, "<f4").ravel().tobytes()
        content += np.ascontiguousarray(self.bits, np.uint8).tobytes()
        content += struct.pack("<I", zlib.crc32(content))
        return write_whole(path, content)


def read(path: str | os.PathLike[str]) -> PackedNetworks:
    """Read a file that `PackedNetworks.write` wrote; a damaged or foreign file is a ValueError that says so."""
    content = Path(path).read_bytes()
    if content[:5] != MAGIC[:5]:
        raise ValueError(f"{path} does not hold exported binary networks: it begins with {content[:8]!r}.")
    if len(content) < 16:
        raise ValueError(f"{path} is cut off: it has {len(content)} bytes.")
    if content[:8] != MAGIC:
        raise ValueError(f"{path} has format version {content[7]}, this reader knows version {MAGIC[7]}.")
    if zlib.crc32(content[:-4]) != struct.unpack("<I", content[-4:])[0]:
        raise ValueError(f"{path} is damaged or cut off: its checksum is wrong.")
    try:
        return _parse(content)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is not what a writer of this format writes: {error}.") from error


def _parse(content: bytes) -> PackedNetworks:
    """A file whose checksum is right; its header may still be anything."""
    (length,) = struct.unpack("<I", content[8:12])
    header = json.loads(content[12 : 12 + length])
    body, inputs, count = content[12 + length : -4], header["inputs"], header["networks"]
    if not (_is_size(inputs) and _is_size(count) and 8 * inputs <= len(body)):
        raise ValueError(f"{inputs} inputs and {count} networks in {len(body)} bytes")
    center, scale = np.frombuffer(body, "<f4", 2 * inputs).reshape(2, inputs)
    networks = PackedNetworks(
        bits=np.frombuffer(body, np.uint8, offset=8 * inputs).reshape(count, -1),
        layers=tuple(header["layers"]),
        activation=header["activation"],
        logit_scale=header["logit_scale"],
        intercepts=tuple(header["intercepts"]),
        center=center,
        scale=scale,
        classes=np.asarray(header["classes"]),
    )
    networks.check()
    return networks


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def write_whole(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file through a neighbour that replaces it, so that nobody ever sees half of it."""
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _softmax(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    result: np.ndarray = odds / odds.sum(axis=1, keepdims=True)
    return result
