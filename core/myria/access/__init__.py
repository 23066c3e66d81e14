"""Who asks and what they may do: keys, principals, tenants, grants, quotas and the audit journal."""
