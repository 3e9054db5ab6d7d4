"""Every knob of the service: one field is one flag, one environment variable, one sentence."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from model.errors import BundleError
from model.signing import check_public_key


class Settings(BaseSettings):
    """Read from arguments, then from SPLINECNN_* environment variables, then the defaults here."""

    model_config = SettingsConfigDict(env_prefix="SPLINECNN_", extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    workers: int = Field(
        default=1, ge=1, le=256, description="Server processes, each with all models."
    )
    models: Path = Field(
        default=Path("bundles"), description="Directory of bundles, laid out as <name>/<version>/."
    )
    versions: Literal["latest", "all"] = Field(
        default="latest",
        description="Which versions of each model to load at the start: latest or all.",
    )
    only: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Names of the models to load, separated by commas; none loads all.",
    )
    watch_seconds: float = Field(
        default=2.0,
        ge=0,
        description="How often to look for changed bundles on disk; 0 never looks.",
    )
    default_models: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        description="Model used by a task when the request names none, as task=name,task=name.",
    )
    runtime: Literal["torchscript", "onnx"] = Field(
        default="torchscript", description="What executes the models: torchscript or onnx."
    )
    device: str = Field(
        default="cpu", description="Where models run: cpu, cuda, or several such as cuda:0,cuda:1."
    )
    threads: int = Field(
        default=0, ge=0, le=1024, description="Threads one model run may use; 0 takes every core."
    )
    batching: bool = Field(default=True, description="Whether requests may share one model run.")
    batch_nodes: int = Field(
        default=16384, ge=1, description="Most nodes in one batch; a larger graph runs alone."
    )
    batch_edges: int = Field(
        default=262144, ge=1, description="Most edges in one batch; a larger graph runs alone."
    )
    small_nodes: int = Field(
        default=4096,
        ge=0,
        description="Graphs up to this many nodes, with no more edges than a batch, never wait "
        "behind larger ones.",
    )
    max_queue: int = Field(
        default=512, ge=1, description="Most requests accepted and not yet answered; beyond it 429."
    )
    deadline_ms: int = Field(
        default=30000, ge=1, description="Time in which a request is answered, or refused with 504."
    )
    body_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Time in which a caller must have sent the whole body, or 408.",
    )
    stuck_seconds: float = Field(
        default=120.0, gt=0, description="A model run longer than this makes the service not ready."
    )
    max_body_mb: float = Field(
        default=64.0, gt=0, description="Largest body, also after decompression."
    )
    max_nodes: int = Field(
        default=250000, ge=1, description="Most nodes or vertices of one request."
    )
    max_edges: int = Field(default=2000000, ge=1, description="Most edges of one request.")
    max_faces: int = Field(default=500000, ge=1, description="Most faces of one mesh.")
    max_pixels: int = Field(default=4000000, ge=1, description="Most pixels of one image.")
    max_top_k: int = Field(default=100, ge=1, description="Most candidates per vertex.")
    api_keys: SecretStr | None = Field(
        default=None,
        description="Keys that may call the service, separated by commas; none opens it.",
    )
    api_keys_file: Path | None = Field(
        default=None, description="File of keys, one per line, lines starting with # ignored."
    )
    admin_key: SecretStr | None = Field(
        default=None, description="Key that may load and unload models; without it nobody may."
    )
    trusted_keys: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Ed25519 public keys in base64, separated by commas; when set, only bundles "
        "signed by one of them are served.",
    )
    cors_origins: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Origins whose pages may call the service, separated by commas.",
    )
    tls_cert: Path | None = Field(
        default=None, description="Certificate chain in PEM; turns TLS on."
    )
    tls_key: Path | None = Field(default=None, description="Private key of the certificate in PEM.")
    log_format: Literal["json", "text"] = Field(
        default="json", description="Shape of the log lines: json or text."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Least severe log line that is written: debug, info, warning or error.",
    )
    traces: bool = Field(
        default=False,
        description="Whether to send OpenTelemetry traces, as the OTEL_* variables say.",
    )
    drain_seconds: float = Field(
        default=25.0, ge=0, description="Longest time after SIGTERM to answer what was accepted."
    )
    drain_notice_seconds: float = Field(
        default=0.5,
        ge=0,
        description="Time after SIGTERM in which new callers still get a plain 503.",
    )

    @field_validator("default_models", mode="before")
    @classmethod
    def _split_pairs(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [item.partition("=") for item in value.split(",") if item.strip()]
        if any(not (name and task) for task, _, name in pairs):
            raise ValueError("must look like task=name,task=name")
        return {task.strip(): name.strip() for task, _, name in pairs}

    @field_validator("default_models")
    @classmethod
    def _check_tasks(cls, value: dict[str, str]) -> dict[str, str]:
        if value:
            from model.graph import TASKS  # here, for it brings torch, and few set this

            for task in value:
                if task not in TASKS:
                    raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
        return value

    @field_validator("cors_origins", "only", "trusted_keys", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return [item.strip() for item in value.split(",") if item.strip()]

    @field_validator("trusted_keys")
    @classmethod
    def _check_keys(cls, value: list[str]) -> list[str]:
        try:
            return [check_public_key(key) for key in value]
        except BundleError as error:
            raise ValueError(str(error)) from None

    @field_validator("device")
    @classmethod
    def _check_devices(cls, value: str) -> str:
        for name in value.split(","):
            kind, colon, index = name.strip().partition(":")
            if kind not in ("cpu", "cuda") or (colon and not index.isdigit()):
                raise ValueError(f"must be cpu, cuda or cuda:<number>, got {name.strip()!r}")
        return value

    @model_validator(mode="after")
    def _check_tls(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key go together: set both or neither")
        return self

    @property
    def devices(self) -> list[str]:
        return [name.strip() for name in self.device.split(",")]

    @cached_property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * 1024 * 1024)

    @property
    def run_threads(self) -> int:
        return self.threads or len(os.sched_getaffinity(0))
