/**
 * What can go wrong.
 *
 *     MyriaClientError
 *     +-- Unreachable           no answer came: the server is away, or the network is
 *     +-- Unreadable            an answer came that is none of Myria's: another program answers there, or a proxy
 *     +-- Refused               the server answered that it does not do this; `code` says why
 *         +-- Invalid           ... as it was asked: change the call
 *         +-- NotAllowed        ... for this key
 *         +-- NotFound          ... because it is not there, or not for this key
 *         +-- Conflict          ... because of what is kept already
 *         |   +-- Duplicate     ... the same memory was kept a while ago
 *         +-- Busy              ... now: the same call may succeed later
 *
 * A call that its caller aborts rejects with the reason of the signal, which is none of these.
 */

/** Every error of this package. */
export class MyriaClientError extends Error {
  override name: string = "MyriaClientError";
}

/** No answer came, also when tried again. Whether the call took effect is unknown: it is safe to repeat it. */
export class Unreachable extends MyriaClientError {
  override name = "Unreachable";
}

/** What answered is no Myria, or one whose answers this version of the package does not know. */
export class Unreadable extends MyriaClientError {
  override name = "Unreadable";
}

/** What a refusal says. */
export interface Refusal {
  /** Stable, e.g. `note_not_found`, `PERMISSION_DENIED`; docs/errors.md lists them. */
  code: string;
  /** What is wrong, and what to do. */
  reason: string;
  /** The status of the HTTP answer. */
  status: number;
  /** What to do, where the server says it beside the reason. */
  hint?: string;
  /** Which field of the call is meant. */
  field?: string;
  /** Which memory of several is meant. */
  index?: number;
  /** Of a duplicate, the memory that stands. */
  memoryId?: string;
  /** How long the server wants to be left alone, in milliseconds. */
  retryAfterMs?: number;
}

/** The server refused a call. */
export class Refused extends MyriaClientError implements Refusal {
  override name: string = "Refused";
  readonly code: string;
  readonly reason: string;
  readonly status: number;
  readonly hint?: string;
  readonly field?: string;
  readonly index?: number;
  readonly memoryId?: string;
  readonly retryAfterMs?: number;

  constructor(refusal: Refusal) {
    super(`${refusal.code}: ${refusal.reason}${refusal.hint ? ` (${refusal.hint})` : ""}`);
    this.code = refusal.code;
    this.reason = refusal.reason;
    this.status = refusal.status;
    this.hint = refusal.hint;
    this.field = refusal.field;
    this.index = refusal.index;
    this.memoryId = refusal.memoryId;
    this.retryAfterMs = refusal.retryAfterMs;
  }
}

/** The call is not one that the server takes. */
export class Invalid extends Refused {
  override name = "Invalid";
}

/** The key is missing, unknown, or does not allow this. */
export class NotAllowed extends Refused {
  override name = "NotAllowed";
}

/** What was named is not there; what this key may not see is not there either. */
export class NotFound extends Refused {
  override name = "NotFound";
}

/** What is kept already does not allow this. */
export class Conflict extends Refused {
  override name: string = "Conflict";
}

/** The same memory was kept within the server's window; nothing was kept. */
export class Duplicate extends Conflict {
  override name = "Duplicate";
}

/** The server could not do this now, also when tried again. */
export class Busy extends Refused {
  override name = "Busy";
}
