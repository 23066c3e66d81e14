"""The build plane: the process that compiles the event log into a snapshot (`myria build`)."""
