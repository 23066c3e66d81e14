"""The control plane on Kubernetes: MyriaRebuild resources, triggers and Jobs.

On one machine `myria up` runs the same triggers, queue and builder process without Kubernetes.

How a resource is handled: `watch` hears of it, `queue` holds its name, `reconcile` observes it with its Job and its
build, `decide` says what its status is and what to do next, and `reconcile` carries that out. `requests` makes
resources for causes; `sweep` finds changes that no watch reported.
"""
