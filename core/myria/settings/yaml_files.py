"""YAML files that people write: read strictly, and refused without quoting them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from myria.errors import ConfigurationError


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML without duplicate keys: PyYAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys_so_far: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in keys_so_far:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands there twice", key_node.start_mark
                )
            keys_so_far.add(key)
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: Path, what: str) -> Any:
    """Read a YAML (or JSON) file, and return its content.

    Args:
        what: names the file in a refusal, such as `The configuration file`.

    Raises:
        ConfigurationError: the file cannot be read, or is not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a subclass of SafeLoader
    except OSError as error:
        raise ConfigurationError(f"{what} {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError, TypeError) as error:
        raise ConfigurationError(f"{what} {path} is not valid YAML: {_problem(error)}.") from None


def _problem(error: Exception) -> str:
    """Return what is wrong and where, without quoting the file: a line of it may hold a password."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} (line {mark.line + 1}, column {mark.column + 1})"
    return type(error).__name__
