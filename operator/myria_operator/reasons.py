"""The types of a MyriaRebuild's conditions, and their reasons: names that programs may rely on.

A reason belongs to one or more condition types; each constant says in one line what it means. docs/kubernetes.md lists
the same for people. A name, once released, keeps its meaning; a new situation gets a new name.
"""

from __future__ import annotations

from typing import Final

# Condition types.

SUCCEEDED: Final = "Succeeded"
"""The summary: Unknown until it has ended, then True or False for ever (a held build that is approved stays True)."""
PUBLISHED: Final = "Published"
"""Whether this resource moved the pointer; stays True after a later rollback."""
SUSPENDED: Final = "Suspended"
"""Whether `suspend` took effect."""

CONDITION_TYPES: Final = (SUCCEEDED, PUBLISHED, SUSPENDED)
"""In the order in which they are written."""

# Succeeded=Unknown: not ended; Published=Unknown shares PENDING.

PENDING: Final = "Pending"
"""Seen by the operator; nothing is decided yet."""
QUEUED: Final = "Queued"
"""Waits for its turn: the tenant has an unfinished build, or all of the installation's slots are taken."""
SUSPEND_REQUESTED: Final = "SuspendRequested"
"""Waits, or stopped working, because `suspend` is true; also the reason of Suspended=True."""
STARTING: Final = "Starting"
"""Its Job exists, and the operator has not seen a pod at work on the build yet."""
POD_NOT_STARTING: Final = "PodNotStarting"
"""A pod of its Job cannot start (image pull, scheduling, a missing Secret); also why such a build was given up."""
PODS_REFUSED: Final = "PodsRefused"
"""The API server refuses the pods of its Job (quota, priority class, admission); also why such a build was given up."""
BUILDING: Final = "Building"
"""A pod works on its build."""
ABORTING: Final = "Aborting"
"""`abort` is true, and the build has not ended yet."""
DATABASE_UNAVAILABLE: Final = "DatabaseUnavailable"
"""The operator cannot reach the database; it goes on by itself."""
PERMISSION_MISSING: Final = "PermissionMissing"
"""The operator may not do what is next; the message names verb and resource."""
CRD_OUTDATED: Final = "CRDOutdated"
"""The installed CustomResourceDefinition drops status fields; apply crds/myriarebuild.yaml anew."""

# Succeeded=True.

BUILD_PUBLISHED: Final = "BuildPublished"
"""The build is valid, and its snapshot was made the active one; also the reason of Published=True."""
HELD: Final = "Held"
"""The build is valid and waits for `approve`; the tenant's slot is free."""
NOTHING_TO_DO: Final = "NothingToDo"
"""There was no new event (in a full build: no difference), or the snapshot asked for is active already; also the
reason of Published=False."""
ROLLED_BACK: Final = "RolledBack"
"""The pointer moved back to the snapshot asked for; also the reason of Published=True."""

# Succeeded=False.

INVALID_SPEC: Final = "InvalidSpec"
"""The spec breaks a rule that this API server does not enforce; the message says which."""
UNKNOWN_TENANT: Final = "UnknownTenant"
"""The installation's database has no such tenant."""
UNKNOWN_SNAPSHOT: Final = "UnknownSnapshot"
"""The tenant has no such snapshot, or it is no longer kept."""
SNAPSHOT_NOT_RESTORABLE: Final = "SnapshotNotRestorable"
"""The snapshot was never active, so the pointer cannot go back to it."""
NO_PREVIOUS_SNAPSHOT: Final = "NoPreviousSnapshot"
"""`previous` was asked for, and no kept snapshot before the active one differs from it."""
BUILD_FAILED: Final = "BuildFailed"
"""The build ended as failed in the database; the message has its error."""
PARENT_MOVED: Final = "ParentMoved"
"""Another snapshot became active meanwhile; also the final reason of Published=False for a held build."""
ABORTED: Final = "Aborted"
"""Given up, by `abort` or by an administrator of the tenant; also the reason of Published=False."""
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
"""`build.deadlineSeconds` passed."""
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
"""More pods failed than `build.backoffLimit` allows."""
BAD_INPUT: Final = "BadInput"
"""A pod said that no retry can help (podFailurePolicy): its configuration or arguments are wrong."""
WORKER_LOST: Final = "WorkerLost"
"""The Job ended or went away, and no terminal build says how; what it had done is not published."""
UNINSTALLED: Final = "Uninstalled"
"""The operator's Deployment was deleted while the build ran; nothing of it was published."""
JOB_CONFLICT: Final = "JobConflict"
"""Another object owns a Job of the name that this resource needs."""
JOB_REFUSED: Final = "JobRefused"
"""The API server refused the Job (quota, admission, an invalid pod template); the message has its answer."""

TRANSIENT: Final = frozenset({WORKER_LOST, UNINSTALLED, JOB_CONFLICT, JOB_REFUSED, PODS_REFUSED, POD_NOT_STARTING})
"""Ends of a build that say nothing about its events: an automatic build tries the same events again, later each time.

Pods that fail again and again, or never end, may be killed by what they compile; then it takes new events."""

# Published.

AWAITING_APPROVAL: Final = "AwaitingApproval"
"""Published=False: the held snapshot waits for `approve`."""
APPROVED: Final = "Approved"
"""Published=True: `approve` published the held snapshot."""
NOT_SUCCEEDED: Final = "NotSucceeded"
"""Published=False: it ended without anything to publish."""

# Suspended.

NOT_SUSPENDED: Final = "NotSuspended"
"""Suspended=False: `suspend` is absent or false, or came after the end."""
