"""The control plane on Kubernetes: MyriaRebuild resources, triggers and Jobs.

On one machine `myria up` runs the same triggers, the same queue and the same builder process without it.

A resource's way: `app` hears of it, `queue` holds its name, `reconcile` reads it with its Job and its build, `status`
says what it is, `steps` what is next. `requests` makes resources out of causes, `sweep` finds what nobody told of.
"""
