"""The MyriaRebuild resource, as both the operator and a build's pods know it.

Its names, what a build says on its status, the statements that read and write what belongs to a resource, and the
connection to the API server. Nothing below this package knows Kubernetes.
"""
