"""The server's settings: sensible for a laptop, durable before fast."""

from __future__ import annotations

from collections.abc import Mapping

LOG_FOLDER = "log"

DEFAULTS: Mapping[str, str] = {
    # Nothing acknowledged is ever lost.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_level": "replica",
    # A laptop: small and quiet.
    "max_connections": "100",
    "shared_buffers": "128MB",
    "effective_cache_size": "1GB",
    "maintenance_work_mem": "64MB",
    "max_wal_size": "1GB",
    "min_wal_size": "80MB",
    "random_page_cost": "1.1",
    "jit": "off",
    # The log only grows: keep its statistics and visibility map fresh after inserts.
    "autovacuum_naptime": "20s",
    "autovacuum_analyze_scale_factor": "0.02",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    # Never without a password.
    "password_encryption": "scram-sha-256",
    # The same everywhere.
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A week of logs, one file a day.
    "logging_collector": "on",
    "log_directory": LOG_FOLDER,
    "log_filename": "postgres-%a.log",
    "log_file_mode": "0600",
    "log_truncate_on_rotation": "on",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
