"""How a valid file is damaged: Hypothesis draws a few changes, and shrinks them to the fewest that still do harm."""

import struct
from typing import NamedTuple

from hypothesis import strategies as st

NUMBERS = (
    0,
    1,
    -1,
    2**15,
    2**16 - 1,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**53,
    2**62,
    2**63 - 1,
    -(2**31),
    -(2**63),
)
WORDS = (
    b"", b"0", b"-1", b"1e308", b"1e-400", b"nan", b"inf", b"99999999999999999999", b"4294967296", b"2147483648", b"NULL", b"\x00",
    b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"'", b",", b"\t", b"::", b"\n", b"\r\n", b"\n\n", b" ", b"\xc3\xa9", b"{", b"}", b"[", b"]", b"null",
    b"true", b"\\u0000", b"../", b"1.5", b"O", b"|O", b"<f8", b"x" * 300,
)  # fmt: skip


class Change(NamedTuple):
    """One change; `place` and `other` are shares of the file's length."""

    kind: str
    place: float
    other: float
    number: int


KINDS = ("flip", "byte", "cut", "delete", "repeat", "move", "number", "word", "token", "extend")
changes = st.lists(
    st.builds(
        Change,
        st.sampled_from(KINDS),
        st.floats(0, 1, exclude_max=True, width=32),
        st.floats(0, 1, exclude_max=True, width=32),
        st.integers(0, 2**16),
    ),
    min_size=1,
    max_size=5,
)


def damaged(content: bytes, done: list[Change]) -> bytes:
    """The content after some changes."""
    for change in done:
        content = _apply(content, change)[: 1 << 20]
    return content


def _apply(content: bytes, change: Change) -> bytes:
    length = len(content)
    at = int(change.place * length)
    end = min(length, at + 1 + int(change.other**3 * min(length, 4_096)))
    if change.kind == "flip" and length:
        return content[:at] + bytes([content[at] ^ (1 << change.number % 8)]) + content[at + 1 :]
    if change.kind == "byte" and length:
        return content[:at] + bytes([change.number % 256]) + content[at + 1 :]
    if change.kind == "cut":
        return content[:at]
    if change.kind == "delete":
        return content[:at] + content[end:]
    if change.kind == "repeat":
        return content[:end] + content[at:end] * (1 + change.number % 3) + content[end:]
    if change.kind == "move":
        to = int(change.other * length)
        return content[:to] + content[at:end] + content[to + end - at :]
    if change.kind == "number":
        packing = ("<i", ">i", "<q", ">q", "<h", "<d")[change.number % 6]
        value = NUMBERS[change.number // 6 % len(NUMBERS)]
        bits = 8 * struct.calcsize(packing)
        if packing.endswith("d"):
            packed = struct.pack(packing, float(value))
        else:
            packed = (value % 2**bits).to_bytes(bits // 8, "little" if packing[0] == "<" else "big")
        return content[:at] + packed + content[at + len(packed) :]
    if change.kind == "word":
        return content[:at] + WORDS[change.number % len(WORDS)] + content[at:]
    if change.kind == "token":
        return _replace_token(content, at, WORDS[change.number % len(WORDS)])
    if change.kind == "extend":
        return content + WORDS[change.number % len(WORDS)] * (1 + int(10 * change.other))
    return content


def _replace_token(content: bytes, at: int, word: bytes) -> bytes:
    """Put a word in the place of the number or name around a place."""

    def inside(i: int) -> bool:
        return chr(content[i]).isalnum() or content[i] in b".-"

    start = end = at
    while start > 0 and inside(start - 1):
        start -= 1
    while end < len(content) and inside(end):
        end += 1
    return content[:start] + word + content[end:]
