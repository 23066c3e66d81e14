"""Every setting of Myria, in one object.

A value comes from the first of these that has it:

1. an override given by the program (a command-line option),
2. the environment variable `MYRIA_<SECTION>_<FIELD>`,
3. the YAML file named by `--config` or `MYRIA_CONFIG`, as `section: {field: value}`,
4. the default below.

An unknown key or variable is an error that names the nearest known one: a typo never means a default.
Each field is followed by one docstring with its reason; docs/settings.md is generated from them (`make docs`). The end
of a name says its unit: `_s` seconds, `_ms` milliseconds, `_bytes` bytes, `_days` days.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_type_hints

from myria.errors import ConfigurationError
from myria.settings.database import (
    AuditSettings,
    ErasureSettings,
    IngestSettings,
    MigrateSettings,
    PostgresSettings,
    RedactionSettings,
    RetentionSettings,
    SecretsSettings,
)
from myria.settings.memory import (
    BuilderSettings,
    NotesSettings,
    OperatorSettings,
    RecallSettings,
    RetrievalSettings,
    ReviewSettings,
    TopicsSettings,
)
from myria.settings.models import EmbeddingsSettings, LlmSettings, SecondLookSettings
from myria.settings.planner import PlannerSettings
from myria.settings.sections import Section, Setting, nearest, section, variable_of
from myria.settings.serving import (
    AgentSettings,
    AppendOthers,
    AuthMode,
    AuthSettings,
    ConsoleSettings,
    LogSettings,
    McpSettings,
    MetricsSettings,
    NameStyle,
    Profile,
    RestSettings,
    ServiceSettings,
    TurnsSettings,
)

REBUILD_VARIABLES = ("MYRIA_REBUILD_NAMESPACE", "MYRIA_REBUILD_NAME", "MYRIA_REBUILD_UID")
"""Variables that name the MyriaRebuild on whose status a build's pod reports; the operator sets them."""

MASTER_KEY_VARIABLE = "MYRIA_MASTER_KEY"
"""The variable with the keys under which secrets are sealed; no setting, so that no list of settings shows it."""

RESERVED_VARIABLES = frozenset(
    {"MYRIA_CONFIG", "MYRIA_DATA_DIR", "MYRIA_TENANT", "MYRIA_KEY", MASTER_KEY_VARIABLE, *REBUILD_VARIABLES}
)
"""Variables read by the programs themselves, beside the settings."""

_TEST_PREFIX = "MYRIA_TEST_"

__all__ = [
    "MASTER_KEY_VARIABLE",
    "REBUILD_VARIABLES",
    "RESERVED_VARIABLES",
    "SECTIONS",
    "AgentSettings",
    "AppendOthers",
    "AuditSettings",
    "AuthMode",
    "AuthSettings",
    "BuilderSettings",
    "ConsoleSettings",
    "EmbeddingsSettings",
    "ErasureSettings",
    "IngestSettings",
    "LlmSettings",
    "LogSettings",
    "McpSettings",
    "MetricsSettings",
    "MigrateSettings",
    "NameStyle",
    "NotesSettings",
    "OperatorSettings",
    "PlannerSettings",
    "PostgresSettings",
    "Profile",
    "RecallSettings",
    "RedactionSettings",
    "RestSettings",
    "RetentionSettings",
    "RetrievalSettings",
    "ReviewSettings",
    "SecondLookSettings",
    "SecretsSettings",
    "ServiceSettings",
    "Setting",
    "Settings",
    "TopicsSettings",
    "TurnsSettings",
    "variable_of",
]


@section
class Settings(Section):
    """All settings, checked. Make one with `Settings.load`, or directly for tests (`Settings()` is all
    defaults)."""

    service: ServiceSettings = ServiceSettings()
    mcp: McpSettings = McpSettings()
    auth: AuthSettings = AuthSettings()
    console: ConsoleSettings = ConsoleSettings()
    postgres: PostgresSettings = PostgresSettings()
    ingest: IngestSettings = IngestSettings()
    redaction: RedactionSettings = RedactionSettings()
    notes: NotesSettings = NotesSettings()
    review: ReviewSettings = ReviewSettings()
    recall: RecallSettings = RecallSettings()
    agent: AgentSettings = AgentSettings()
    turns: TurnsSettings = TurnsSettings()
    rest: RestSettings = RestSettings()
    builder: BuilderSettings = BuilderSettings()
    planner: PlannerSettings = PlannerSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    topics: TopicsSettings = TopicsSettings()
    retention: RetentionSettings = RetentionSettings()
    audit: AuditSettings = AuditSettings()
    erasure: ErasureSettings = ErasureSettings()
    operator: OperatorSettings = OperatorSettings()
    llm: LlmSettings = LlmSettings()
    embeddings: EmbeddingsSettings = EmbeddingsSettings()
    second_look: SecondLookSettings = SecondLookSettings()
    secrets: SecretsSettings = SecretsSettings()
    migrate: MigrateSettings = MigrateSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()

    def rules(self) -> None:
        """Check that no section allows what another makes impossible."""
        if self.ingest.payload_bytes > self.mcp.body_bytes:
            raise ConfigurationError(
                f"ingest.payload_bytes ({self.ingest.payload_bytes}) exceeds mcp.body_bytes "
                f"({self.mcp.body_bytes}): such a payload could never arrive.",
                field="ingest.payload_bytes",
            )
        if self.llm.template is not None and self.llm.walk_deadline_s >= self.mcp.request_deadline_s:
            raise ConfigurationError(
                f"llm.walk_deadline_s ({self.llm.walk_deadline_s}) must be below mcp.request_deadline_s "
                f"({self.mcp.request_deadline_s}): no walk would ever be answered.",
                field="llm.walk_deadline_s",
            )

    @classmethod
    def load(
        cls,
        config_path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Settings:
        """Return the settings from defaults, YAML file, environment and overrides, later ones winning.

        Args:
            config_path: the YAML file; without it `MYRIA_CONFIG` names one, or there is none.
            environ: the environment; without it the process's own.
            overrides: values by `section.field`, from the command line. `None` means "not given".

        Raises:
            ConfigurationError: the file cannot be read or is no YAML mapping; a key or variable is unknown; a
                value is of a wrong type or out of range. The message names the field and
                where the value came from.
        """
        variables = os.environ if environ is None else environ
        path = config_path or variables.get("MYRIA_CONFIG") or None
        values: dict[str, Any] = {}
        _sources.clear()
        for source, given in (
            (f"file {path}", {} if path is None else _from_file(Path(path))),
            ("environment", _from_environment(variables)),
            ("command line", _from_overrides(overrides or {})),
        ):
            values.update(given)
            _sources.update(dict.fromkeys(given, source))
        sections: dict[str, dict[str, Any]] = {}
        for key, field_value in values.items():
            section_name, name = key.split(".", 1)
            sections.setdefault(section_name, {})[name] = field_value
        section_values: dict[str, Any] = {name: SECTIONS[name](**fields) for name, fields in sections.items()}
        return cls(**section_values)

    def get(self, key: str) -> Any:
        """Return the value of a setting, by `section.field`."""
        section_name, name = key.split(".")
        return getattr(getattr(self, section_name), name)

    def variables(self) -> dict[str, str]:
        """Return environment variables for a child process, whose `load` then gives exactly these settings."""
        return {setting.variable: setting.to_text(self.get(key)) for key, setting in _BY_KEY.items()}

    def source_of(self, key: str) -> str:
        """Return where the value of a setting came from when this process loaded its settings last.

        `default`, `file PATH`, `environment` or `command line`; `program` for one that the program itself made.
        """
        if self.get(key) == _BY_KEY[key].default:
            return "default"
        return _sources.get(key, "program")

    @staticmethod
    def describe() -> list[Setting]:
        """Return every setting, in the order they are written."""
        return list(_BY_KEY.values())


SECTIONS: Mapping[str, type[Section]] = cast(
    "dict[str, type[Section]]",
    {
        name: section
        for name, section in get_type_hints(Settings).items()
        if isinstance(section, type) and issubclass(section, Section)
    },
)
"""Every section by the name it has in the YAML file."""


_sources: dict[str, str] = {}
"""By setting, the source that gave its value when `Settings.load` ran last."""

_BY_KEY: Mapping[str, Setting] = {
    setting.key: setting for section in SECTIONS.values() for setting in section.settings.values()
}
_BY_VARIABLE: Mapping[str, str] = {setting.variable: key for key, setting in _BY_KEY.items()}


def _from_file(path: Path) -> dict[str, Any]:
    """Return the settings in a YAML file, by `section.field`."""
    from myria.settings.yaml_files import read_yaml  # noqa: PLC0415 - most programs read no file

    document = read_yaml(path, "The configuration file")
    values: dict[str, Any] = {}
    for section_name, fields in _mapping(document, f"The configuration file {path}").items():
        if section_name not in SECTIONS:
            raise _unknown(str(path), "section", str(section_name), SECTIONS)
        for name, field_value in _mapping(fields, f"{path}: {section_name}").items():
            key = f"{section_name}.{name}"
            if key not in _BY_KEY:
                raise _unknown(str(path), "setting", key, _BY_KEY)
            values[key] = _BY_KEY[key].from_value(f"{path}: {key}", field_value)
    return values


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    """Return a YAML mapping; an empty file or an empty section counts as one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be a mapping of names to values.")
    return value


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the environment, by `section.field`; refuse an unknown variable of Myria."""
    values: dict[str, Any] = {}
    for variable in sorted(environ):
        if not variable.startswith("MYRIA_") or variable in RESERVED_VARIABLES:
            continue
        if variable.startswith(_TEST_PREFIX) or _is_service_link(variable, environ):
            continue
        key = _BY_VARIABLE.get(variable)
        if key is None:
            raise _unknown("environment", "variable", variable, [*_BY_VARIABLE, *RESERVED_VARIABLES])
        values[key] = _BY_KEY[key].from_text(f"{variable} ({key})", environ[variable])
    return values


_SERVICE_LINK = re.compile(
    r"(?P<prefix>MYRIA(?:_[A-Z0-9_]+)??)_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)


def _is_service_link(variable: str, environ: Mapping[str, str]) -> bool:
    """Tell whether Kubernetes set the variable, for a Service named `myria` or `myria-...` in the pod's namespace.

    Such a variable may be named like a setting (MYRIA_MCP_PORT); then only its value (tcp://...) tells.
    """
    match = _SERVICE_LINK.fullmatch(variable)
    if match is None or f"{match['prefix']}_SERVICE_HOST" not in environ:
        return False
    return variable not in _BY_VARIABLE or "://" in environ[variable]


def _from_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, field_value in overrides.items():
        if field_value is None:
            continue
        if key not in _BY_KEY:
            raise _unknown("override", "setting", key, _BY_KEY)
        values[key] = _BY_KEY[key].from_value(key, field_value)
    return values


def _unknown(where: str, what: str, name: str, known: Any) -> ConfigurationError:
    hint = nearest(name, known)
    return ConfigurationError(f"{where}: unknown {what} {name!r}; did you mean {hint!r}?", field=name, nearest=hint)
