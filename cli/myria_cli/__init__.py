"""The `myria` command: composes the planes, and runs all of them on one machine (`myria up`)."""
