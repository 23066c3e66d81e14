"""The build plane: the process that compiles the event log into a snapshot (`myria build`).

`build` works on one build with as many processes as asked for. A Kubernetes Job runs the same thing in each of its
pods; all of them share the build's tasks through PostgreSQL.
"""

from myria_builder.process import build

__all__ = ["build"]
