"""PostgreSQL for one machine without an administrator: found or started by whoever needs it."""

from myria_embedded.data_dir import default_data_dir
from myria_embedded.roles import RoleDsns, ensure_roles, grant_roles, role_dsns
from myria_embedded.server import EmbeddedPostgres, Progress

__all__ = ["EmbeddedPostgres", "Progress", "RoleDsns", "default_data_dir", "ensure_roles", "grant_roles", "role_dsns"]
