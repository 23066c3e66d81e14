"""The control plane on Kubernetes: MyriaRebuild resources, triggers and Jobs.

On one machine `myria up` runs the same triggers, queue and builder process without Kubernetes.

How a resource is handled: `app` learns of it, `queue` holds its name, `reconcile` reads it with its Job and its build,
`status` derives its status, `steps` decides what to do next. `requests` makes resources for causes; `sweep` finds
changes that no watch reported.
"""
