"""Write the generated ends of pages of docs/: settings.md from the settings' docstrings, errors.md from the error tree,
tools.md, metrics.md and roles.md from their catalogues.

Usage: generate_docs.py [--check]

What stands above a page's mark is written by hand. `--check` writes nothing and exits 1 when a page is not current.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from myria import errors
from myria.log.limits import limits_of
from myria.settings import RESERVED_VARIABLES, SECTIONS, Setting, Settings
from myria_monitoring.catalogue import METRICS, Described
from myria_monitoring.figures import COUNTED_AT_ONCE, LOOK_S
from myria_server.api.answers import Answer
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.tools import TOOLS, Tool, description, input_schema
from myria_server.api.without_read import open_model
from myria_server.paths import PATH_OF, REST_PREFIX
from scripts import generated

DOCS = Path(__file__).resolve().parent.parent / "docs"
LIMITS = limits_of(Settings())

UNITS = {"_s": "seconds", "_ms": "milliseconds", "_bytes": "bytes", "_days": "days"}
"""The unit of a setting by the ending of its name."""

PLANES = {
    "process": "Every process",
    "serving": "Each serving process",
    "memory": "Memory and builds (the operator, `myria up`)",
    "operator": "The operator",
}


def settings_page() -> str:
    """Return the generated end of docs/settings.md."""
    reserved = ", ".join(f"`{name}`" for name in sorted(RESERVED_VARIABLES))
    parts = [f"\nThe command line also reads {reserved}.\n"]
    described = Settings.describe()
    for name, section in SECTIONS.items():
        parts.append(f"\n## {name}\n\n{summary(section)}\n\n")
        parts.extend(setting_line(setting) for setting in described if setting.key.startswith(f"{name}."))
    return "".join(parts)


def setting_line(setting: Setting) -> str:
    """Return one line of a section's list; a range without a word is of whole numbers."""
    name = setting.key.split(".")[1]
    default = "unset" if setting.default is None else f"`{plain(setting.default)}`"
    kind = setting.type.removesuffix(", or unset").replace(" | ", "|")
    kind = {"text": "", "true or false": "", "list of text": ""}.get(kind, kind)
    unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending) and not name.endswith("_per_s")), None)
    if unit is not None:
        kind = re.sub("^(?:number|integer)", unit, kind)
    kind = kind.removeprefix("integer ")
    return f"- `{name}` ({'; '.join(word for word in (kind, default) if word)}): {setting.doc}\n"


def plain(value: object) -> str:
    """Return a default as YAML and JSON both write it, whole numbers without a fraction."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value) if not isinstance(value, str) else value


def errors_page() -> str:
    """Return the generated end of docs/errors.md."""
    parts = []
    for family in errors.MyriaError.__subclasses__():
        members = list(leaves(family))
        usual = Counter(outcome(leaf) for leaf in members).most_common(1)[0][0]
        what = "" if members == [family] else f"{summary(family)} "
        parts.append(f"\n## {family.__name__}\n\n{what}{sentence(usual)}.\n\n")
        parts.extend(error_line(leaf, usual) for leaf in members)
    return "".join(parts)


def outcome(leaf: type[errors.MyriaError]) -> tuple[str, str, str]:
    """Return whether a retry helps, the exit status and the HTTP status of an error, in words."""
    retry = "retry" if leaf.retryable else "no retry"
    return retry, f"exit status {leaf.exit_status}", f"HTTP {leaf.http_status}"


def sentence(words: Sequence[str]) -> str:
    """Return words as one sentence without its stop."""
    text = ", ".join(words)
    return f"{text[0].upper()}{text[1:]}"


def error_line(leaf: type[errors.MyriaError], usual: tuple[str, str, str]) -> str:
    """Return one line of a family's list, with what is not as usual in the family."""
    unusual = ", ".join(word for word, other in zip(outcome(leaf), usual, strict=True) if word != other)
    return f"- `{leaf.code}`{f' ({unusual})' if unusual else ''}: {summary(leaf)}\n"


def leaves(error: type[errors.MyriaError]) -> Iterator[type[errors.MyriaError]]:
    """Yield the errors without further kinds below them, in the order they are written."""
    below = error.__subclasses__()
    if not below:
        yield error
    for kind in below:
        yield from leaves(kind)


def tools_page() -> str:
    """Return the generated end of docs/tools.md."""
    parts = []
    described: dict[tuple[str, str], str] = {}
    answered: dict[type[Answer], str] = {}
    for faces, group in groupby(TOOLS, lambda tool: tool.apis):
        tools = list(group)
        common = common_arguments(tools)
        parts.append(f"\n# At {' and '.join(PATH_OF[face] for face in faces)}\n")
        if common:
            parts.append(f"\nEach tool takes:\n\n{''.join(common)}")
        for tool in tools:
            profile = "" if tool.profile == "core" else f", profile `{tool.profile}`"
            needs = f"Role {' or '.join(tool.roles)}{profile}."
            parts.append(f"\n## {tool.plain()}\n\n{description(tool, LIMITS)} {needs}\n\n")
            parts.append(f"{arguments_list(tool, described, common)}\n{answer_line(tool, answered)}\n")
    return "".join(parts)


def roles_page() -> str:
    """Return the generated end of docs/roles.md."""
    parts = ["\n"]
    whole: dict[str, list[str]] = {}
    for tool in TOOLS:
        told = told_without_read(tool.roles, (tool.answer,))
        if told == "all":
            whole.setdefault(" or ".join(tool.roles), []).append(f"`{tool.plain()}`")
        elif told:
            finds = f" (by {' or '.join(f'`{name}`' for name in tool.finds_by)} also read)" if tool.finds_by else ""
            parts.append(f"- `{tool.plain()}`, {' or '.join(tool.roles)}{finds}: {told}\n")
    parts.extend(f"- {', '.join(names)}, {roles}: all\n" for roles, names in whole.items())
    for route in ROUTES:
        told = told_without_read(route.roles, route.answer) if route.answer else "nothing, as to everybody"
        if told:
            parts.append(f"- `{route.method} {REST_PREFIX}{route.path}`, {' or '.join(route.roles)}: {told}\n")
    return "".join(parts)


def told_without_read(roles: Sequence[str], models: Sequence[type[Answer]]) -> str:
    """Return the fields of an answer that a caller without the role `read` gets; nothing where it is refused."""
    if tuple(roles) == ("read",):
        return ""
    if all(open_model(model) is model for model in models):
        return "all"
    return "; ".join(", ".join(f"`{name}`" for name in open_fields(model)) for model in models)


def open_fields(model: type[Answer], begin: str = "") -> Iterator[str]:
    """Yield the open fields of an answer, each field of a nested one behind that field's name."""
    for name, field in open_model(model).model_fields.items():
        nested = [part for part in get_args(field.annotation) if isinstance(part, type) and issubclass(part, Answer)]
        full = f"{begin}{field.alias or name}"
        if not nested:
            yield full
        for part in nested:
            yield from open_fields(part, f"{full}.")


def metrics_page() -> str:
    """Return the generated end of docs/metrics.md."""
    often, seldom = LOOK_S
    parts = [
        f"\nMemory and builds are read at most once in {often:g} s, and less often (up to {seldom:g} s) where that "
        f"takes long. A tail of more than {COUNTED_AT_ONCE:,} events is counted over several reads and shows as too "
        "short until then.\n"
    ]
    for plane, title in PLANES.items():
        parts.append(f"\n## {title}\n\n")
        parts.extend(metric_line(metric) for metric in METRICS if metric.plane == plane)
    return "".join(parts)


def metric_line(metric: Described) -> str:
    """Return one line of a plane's list."""
    labels = [f"`{label}`" for label in metric.labels] + (["*tenant*"] if metric.per_tenant else [])
    by = f" by {', '.join(labels)}" if labels else ""
    return f"- `{metric.name}` ({metric.type}{by}): {metric.meaning}\n"


def argument_lines(tool: Tool) -> Iterator[tuple[str, str]]:
    """Yield the name of each argument of a tool, and its line."""
    schema = input_schema(tool, LIMITS)
    required = schema.get("required", [])
    for name, shape in schema["properties"].items():
        kind = type_name(shape)
        notes = [note for note in ("" if kind == "string" else kind, "required" if name in required else "") if note]
        text = meaning(shape)
        argument = f"`{name}` ({', '.join(notes)})" if notes else f"`{name}`"
        yield name, f"- {argument}: {text}\n" if text else f"- {argument}\n"


def common_arguments(tools: Sequence[Tool]) -> list[str]:
    """Return the lines of arguments that all of more than two tools describe in the same words."""
    each = [dict(argument_lines(tool)) for tool in tools]
    return [line for name, line in each[0].items() if len(tools) > 2 and all(of.get(name) == line for of in each)]


def arguments_list(tool: Tool, described: dict[tuple[str, str], str], common: Sequence[str]) -> str:
    """Return the arguments of a tool as a list, without those that its whole group has.

    An argument that a tool before it describes in the same words is named alone; `described` remembers those.
    """
    lines: list[str] = []
    bare: list[str] = []
    same: dict[str, list[str]] = {}
    for name, line in argument_lines(tool):
        if line in common:
            continue
        if not line.partition(": ")[1]:
            bare.append(line[2:].rstrip())
        elif (other := described.setdefault((tool.apis[0], line), tool.plain())) == tool.plain():
            lines.append(line)
        else:
            same.setdefault(other, []).append(f"`{name}`")
    if bare:
        lines.append(f"- {', '.join(bare)}\n")
    lines.extend(f"- As for `{other}`: {', '.join(names)}\n" for other, names in same.items())
    return "".join(lines) or f"No {'further ' if common else ''}arguments.\n"


def answer_line(tool: Tool, answered: dict[type[Answer], str]) -> str:
    """Return what a tool answers at the top level; `answered` remembers which tool answers a model first."""
    other = answered.setdefault(tool.answer, tool.plain())
    if other != tool.plain():
        return f"Answers as `{other}`."
    fields = ", ".join(f"`{field.alias or name}`" for name, field in tool.answer.model_fields.items())
    return f"Answers {fields}."


def type_name(shape: dict[str, Any]) -> str:
    """Return the type of an argument in words."""
    if "enum" in shape:
        return "|".join(str(value) for value in shape["enum"])
    if "anyOf" in shape:
        return " or ".join(type_name(arm) for arm in shape["anyOf"])
    if isinstance(shape.get("type"), list):
        return " or ".join(type_name({**shape, "type": each}) for each in shape["type"])
    if shape.get("type") == "array":
        items = type_name(shape["items"])
        return "strings" if items == "string" else f"list of {items}"
    if shape.get("type") == "object" and "properties" in shape:
        names = ", ".join(shape["properties"])
        return "event (as for append_event)" if "payload" in shape["properties"] else f"{{{names}}}"
    if shape.get("format") == "date-time":
        return "time"
    low, high = shape.get("minimum"), shape.get("maximum")
    bounds = f" {low}..{high}" if low is not None and high is not None else ""
    return f"{shape.get('type', 'any')}{bounds}"


def meaning(shape: dict[str, Any]) -> str:
    """Return an argument's description with its default, when that says something."""
    text: str = shape.get("description", "")
    default = shape.get("default")
    if default in (None, False, [], ""):
        return text
    return f"{text}; default {plain(default)}" if text else f"default {plain(default)}"


def summary(subject: type) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(inspect.cleandoc(subject.__doc__ or "").split("\n\n")[0].split())


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "errors.md": errors_page,
    "tools.md": tools_page,
    "roles.md": roles_page,
    "metrics.md": metrics_page,
}


if __name__ == "__main__":
    pages = {DOCS / name: partial(generated.below_mark, DOCS / name, page()) for name, page in PAGES.items()}
    raise SystemExit(generated.write_or_check(pages))
