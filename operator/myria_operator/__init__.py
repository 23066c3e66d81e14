"""The control plane's place: MyriaRebuild resources, triggers and Jobs on Kubernetes.

Empty on purpose. On one machine `myria up` runs the same triggers and the same builder process without it.
"""
