"""Arrays of strings: what NumPy spells in several ways, in the one way that is used here.

An array of strings is an array of objects each of which is a `str`. What comes from outside may have a
width (`<U5`), be bytes of UTF-8, or hold other objects, which is no array of strings.
"""

from __future__ import annotations

import numpy as np


def text_array(array: np.ndarray) -> np.ndarray:
    """Return an array of strings as one of objects; the same array where it is one.

    Raises:
        TypeError: an element is no string, or its bytes are not UTF-8; the message says what it is.
    """
    if array.dtype.kind == "U":
        return array.astype(object)
    if array.dtype.kind not in "SO":
        raise TypeError(str(array.dtype))
    items = array.reshape(-1).tolist()
    if all(type(item) is str for item in items):
        return array
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = [_text(item) for item in items]
    return made


def _text(item: object) -> str:
    match item:
        case str():
            return str(item)
        case bytes():
            try:
                return item.decode()
            except UnicodeDecodeError:
                raise TypeError("bytes that are not UTF-8") from None
        case _:
            raise TypeError(f"an object of type {type(item).__name__}")
