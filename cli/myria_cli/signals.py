"""Exit statuses of a command that a signal ended: 128 and the signal's number, as shells have it."""

STOPPED_BY_INTERRUPT = 130
STOPPED_BY_TERMINATE = 143
