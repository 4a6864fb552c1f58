"""The configuration of a server around the engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnout.config.fields import Config, Listed, PathText, PluginText, Texts
from turnout.config.model_names import ModelNames
from turnout.config.web_names import Address, Hosts, Origins
from turnout.core import limits
from turnout.core.sizes import ByteSize

__all__ = ["ServerConfig"]


class ServerConfig(Config):
    """The configuration of a server around the engine: its address, keys, limits and live test."""

    host: Address = Field("127.0.0.1", description="Address to bind.")
    """The default answers on this machine only; `0.0.0.0` answers on all interfaces, and `::` by IPv6 too:
    then set an API key."""
    port: int = Field(
        8000, ge=0, le=65535, description="Port to bind; 0: any free one, which start-up prints."
    )
    uds: PathText | None = Field(
        None, description="Unix socket to listen on, in place of a port; clients name it as `unix:PATH`."
    )
    """Whoever may enter its folder may connect. `/admin` needs a key there."""
    root_path: str = Field(
        "", pattern=r"^(/[\w.~-]+)*$", description="Prefix of all paths, such as /llm, that a proxy gives."
    )
    """Paths without it are served too."""
    ssl_certfile: PathText | None = Field(
        None, description="Certificate of the server, as PEM; with it, the server speaks TLS."
    )
    """`SSL_CERT_FILE=FILE turnout chat --url https://…` trusts one that nobody signed."""
    ssl_keyfile: PathText | None = Field(
        None, description="Key of the certificate, as PEM; default: the certificate's file has it."
    )
    ssl_keyfile_password: str | None = Field(
        None, repr=False, description="Password of the key, if it has one."
    )
    ssl_ca_certs: PathText | None = Field(
        None, description="Authorities, as PEM, of which clients must have a certificate."
    )
    served_model_name: ModelNames = Field(
        (),
        description="Name of the model in the API; repeat the flag for aliases; default: `--model` as given.",
    )
    api_workers: int = Field(
        1,
        gt=0,
        le=64,
        description="Processes that serve HTTP, for when one is full; they share the engines and all limits.",
    )
    """See [server processes](../how-to/scale.md#several-server-processes)."""
    api_key: Texts = Field(
        (),
        repr=False,
        description="Key that clients must send as a bearer token; repeat the flag for several; default: the "
        "environment variable `TURNOUT_API_KEY`, or no key is required.",
    )
    """The header is `Authorization: Bearer KEY`. Flags show in the list of processes; a file does not."""
    api_key_file: PathText | None = Field(
        None, description="File of keys that clients may send, with names and limits if you like."
    )
    """See [keys](../how-to/serve.md#require-an-api-key)."""
    admin_key: Texts = Field(
        (),
        repr=False,
        description="Key that `/admin` requires as a bearer token; default: the environment variable "
        "`TURNOUT_ADMIN_KEY`, or `/admin` answers only this machine.",
    )
    """See [access](admin-api.md#access)."""
    admin_key_file: PathText | None = Field(None, description="File of keys that `/admin` accepts.")
    allowed_hosts: Hosts = Field(
        (),
        description="Host names that the server answers to besides those of this machine; `*`: any; default: "
        "none on a loopback address without a key, elsewhere any.",
    )
    """`*.example.com` stands for all names below. The header `Host` is checked. See
    [web pages](../how-to/serve.md#web-pages)."""
    allowed_origins: Origins = Field(
        (),
        description="Origins whose web pages may use the server, such as `https://chat.example.com`; `*`: "
        "any; default: without a key this machine's own, with a key none.",
    )
    """The server answers them with the headers of CORS. See [web pages](../how-to/serve.md#web-pages)."""
    engine_restarts: int = Field(
        3,
        ge=0,
        description="Restarts of the engine within ten minutes when it dies; requests continue where they "
        "were. 0: the server ends with the engine.",
    )
    """See [when the engine dies](../how-to/serve.md#when-the-engine-dies)."""
    replicas: int = Field(
        1,
        gt=0,
        le=limits.REPLICAS.whole,
        description="Engines behind the port; when one dies, its requests go on in another.",
    )
    """They share the cores and `--memory-share`. See [several engines](../how-to/scale.md)."""
    replica: Texts = Field(
        (),
        description="Engine of a `turnout worker` to serve from, as `tcp://HOST:PORT`; repeat the flag for "
        "several.",
    )
    """Beside `--replicas` engines of this machine if that is given, else alone."""
    replica_key_file: PathText | None = Field(
        None, description="File of the keys that workers have, for `--replica`; `turnout worker` makes one."
    )
    router: PluginText = Field(
        "least-loaded",
        description="Policy that chooses the replica for each request, as `NAME` or `NAME:option=value,…`.",
    )
    """`turnout simulate` runs the same policies."""
    launcher: PluginText = Field(
        "local",
        description="Plugin that starts the engines, as `NAME` or `NAME:option=value,…`.",
    )
    ray_address: str = Field(
        "", description="Address of Ray's head for `--launcher ray`, as `HOST:PORT` or `auto`."
    )
    lazy: bool = Field(False, description="Load a model when its first request comes, not at the start.")
    """See [models on demand](../how-to/serve.md#load-models-on-demand), also for the next four."""
    unload_after: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Idle seconds until a model is unloaded; default: never.",
    )
    max_loaded_models: int | None = Field(
        None,
        gt=0,
        description="Most models that are loaded at once: the one used longest ago makes room; default: all.",
    )
    load_timeout: float = Field(
        limits.LOAD_SECONDS.most,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that loading a model on demand may take, and that a request waits for it.",
    )
    shutdown_timeout: float = Field(
        25,
        ge=0,
        allow_inf_nan=False,
        description="Seconds that running requests get to end after Ctrl-C, SIGTERM or SIGHUP; a second "
        "signal ends them at once.",
    )
    """See [how a server stops](../how-to/serve.md#shut-down)."""
    ab: Texts = Field(
        (),
        description="Serve a part of the sessions by another configuration, as `NAME:field=value,…`, where "
        "each field is an option of `serve`, and compare the two.",
    )
    """See [two configurations at once](../how-to/serve.md#serve-two-configurations-at-once)."""
    split: float | None = Field(
        None, gt=0, lt=1, description="Share of the sessions that the arm of `--ab` gets; default: 0.5."
    )
    max_body_size: ByteSize = Field(
        limits.BODY.whole, description="Size of the largest request body; larger ones get status 413."
    )
    request_memory: ByteSize = Field(
        limits.REQUEST_MEMORY.whole,
        description="Memory for all requests in flight together; beyond it, requests get status 503.",
    )
    """The memory is estimated: of bodies by their bytes and values, of prompts and answers by their tokens,
    text and log-probabilities. A lone request is always taken."""
    event_interval: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Seconds in which a stream's tokens go out as one event; 0: each delta is an event.",
    )
    """A choice's first token and its last do not wait, nor does any where tokens come more slowly."""
    keep_alive_timeout: int = Field(
        limits.KEEP_ALIVE.whole,
        gt=0,
        description="Seconds after which a connection without a request closes.",
    )
    """A proxy in front should close its idle connections earlier."""
    max_connections: int = Field(
        limits.CONNECTIONS.whole,
        gt=0,
        description="Most open connections; beyond it, the server closes the one that was idle longest.",
    )
    """`ulimit -n` may allow fewer."""
    max_connections_per_address: int | None = Field(
        None,
        gt=0,
        description="Most connections of an address that have no request in service; more get status 429; "
        "default: any number.",
    )
    """Behind a proxy all clients have its address."""
    response_store: PathText | None = Field(
        None, description="File in which responses are kept, so that clients go on from them; default: none."
    )
    """An SQLite file; see [stored responses](http-api.md#responses)."""
    response_store_entries: int = Field(
        limits.STORED_RESPONSES.whole, gt=0, description="Most responses that --response-store keeps."
    )
    """Beyond a bound, those go that were used longest ago."""
    response_store_size: ByteSize = Field(
        limits.STORED_BYTES.whole, description="Size of all responses that --response-store keeps."
    )
    response_store_days: float = Field(
        limits.STORED_DAYS.most,
        gt=0,
        allow_inf_nan=False,
        description="Days for which --response-store keeps a response after its last use.",
    )
    batch_dir: PathText | None = Field(
        None, description="Folder of uploaded files and of batches, which outlive the server; default: none."
    )
    """See [batches](http-api.md#batches)."""
    batch_dir_size: ByteSize = Field(
        limits.FILES_BYTES.whole,
        description="Size of all files in --batch-dir; beyond it, uploads and new batches get 507.",
    )
    batch_in_flight: int = Field(
        limits.BATCH_IN_FLIGHT.whole,
        gt=0,
        description="Lines of a batch that are served at once while no client waits.",
    )
    """Beside clients' requests only one is."""
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest severity to log; the log goes to standard error."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="How the log is written; `json`: an object a line, from every process."
    )
    """See [logs](../how-to/observe.md#logs), also for the next three."""
    disable_access_log_for_endpoints: Listed = Field(
        ("/health", "/live", "/ping", "/load", "/metrics"),
        description="Paths whose requests are not logged if they succeed; `*`: no request is logged; "
        "default: /health, /live, /ping, /load and /metrics.",
    )
    log_prompts: bool = Field(False, description="Log each request's prompts, as the model gets them.")
    max_log_len: int | None = Field(
        2000, gt=0, description="Characters of each prompt that `--log-prompts` logs."
    )
    metrics_names: Literal["turnout", "vllm", "both"] = Field(
        "turnout", description="Names of `/metrics`: `turnout:…`, vLLM's `vllm:…`, or both side by side."
    )
    """`vllm`: what vLLM lacks keeps its name. See [vLLM's names](metrics.md#under-vllms-names)."""
    profile_dir: PathText | None = Field(
        None,
        description="Folder for profiles of the engines, which POST /start_profile begins; default: none.",
    )
    """See [profiles](../how-to/observe.md#profiles)."""
    otlp_traces_endpoint: str | None = Field(
        None,
        description="URL of an OpenTelemetry collector for traces, such as `http://127.0.0.1:4318/v1/traces`.",
    )
    """Needs the extra `otel`; `OTEL_EXPORTER_OTLP_ENDPOINT` and its like work too. See
    [traces](../how-to/observe.md#opentelemetry)."""
    otlp_metrics_endpoint: str | None = Field(
        None,
        description="URL of an OpenTelemetry collector for metrics, such as "
        "`http://127.0.0.1:4318/v1/metrics`.",
    )

    @property
    def model_name(self) -> str | None:
        """The name of the model in responses; None: not given."""
        return next(iter(self.served_model_name), None)

    @property
    def model_aliases(self) -> tuple[str, ...]:
        """Further names that requests may give the model."""
        return tuple(dict.fromkeys(self.served_model_name))[1:]
