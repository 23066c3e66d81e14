"""Correcting a note by hand, and adding one: what a person types, what it would change, and the calls of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from myria.db.clock import to_rfc3339
from myria.errors import InvalidArgument
from myria.log.limits import MAX_REASON
from myria.notes.histories import NoteVersion
from myria.notes.kinds import PERMANENT_IMPORTANCE
from myria.notes.standing import NoteStanding, standing
from myria_server.api.memento.input_schemas import KINDS
from myria_server.api.memento.notes import note_json
from myria_server.console.desk import Desk, Json
from myria_server.console.fields import number_of, whole_number_of
from myria_server.console.forms import Fields, Form, Page
from myria_server.console.notes import names_of
from myria_server.console.rendering import query
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.visitors import Visitor
from myria_server.console.wording import differences

FADES, NEVER, WITH_SESSION = "fades", "never", "session"
"""When a note ends: by itself where it is not used, never, or with its session."""

_ENDS: Mapping[str, Json] = {
    FADES: {"scope": "permanent", "isAnchor": False},
    NEVER: {"isAnchor": True},
    WITH_SESSION: {"scope": "session", "isAnchor": False},
}
"""What the tools call that."""

ENDS: Mapping[str, str] = {
    FADES: "by itself, where it is not used",
    NEVER: "never: an anchor",
    WITH_SESSION: "with its session",
}
"""The same in words."""

_LABELS: Mapping[str, str] = {
    "type": "Kind",
    "topic": "Subject",
    "importance": "Importance",
    "keywords": "Keywords",
    "ends": "Ends",
}
"""The fields of the forms beside the text, as pages call them."""

FIELDS: Fields = {
    **{name: (name, label) for name, label in _LABELS.items()},
    **dict.fromkeys(("content", "already_superseded", "idempotency_key_reused"), ("content", "Text")),
    **dict.fromkeys(("agentId", "as"), ("for", "For whom")),
    "reason": ("reason", "Why"),
}
"""What a refusal says of the forms' fields (see `Fields`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Note:
    """A note that is corrected: how it stands, what it says now as answers show it, and what the form begins with."""

    note_id: str
    stands: NoteStanding
    now: Json
    begins: Mapping[str, str]
    from_version: int | None
    """The earlier version with which the form begins; None where it begins with what the note says now."""

    @property
    def version(self) -> NoteVersion:
        """What it says now."""
        return self.stands.versions[0]


async def _noted(desk: Desk, request: Request) -> _Note:
    """Return the note of an address, which may name an earlier version (`from`) with which the form begins.

    Raises:
        RoleRequired, FaceNotAllowed: the visitor may not both read and change notes.
        NoteNotFound: there is none for the visitor.
    """
    for role in ("read", "append"):
        desk.principal.need((role,), what="this form")
    desk.principal.need_api("agent")
    note_id = await desk.memory.note_id(desk.tenant, request.path_params["note_id"])
    may_see = desk.note_masks.sees
    stands = await standing(desk.memory.database, desk.tenant, note_id, may_see=may_see)
    named = whole_number_of(request.query_params.get("from"))
    earlier = next((one for one in stands.versions if one.version == named), None)
    return _Note(
        note_id=note_id,
        stands=stands,
        now=_shown(note_id, stands.versions[0]),
        begins=_typed(_shown(note_id, earlier or stands.versions[0])),
        from_version=earlier.version if earlier else None,
    )


def _shown(note_id: str, version: NoteVersion) -> Json:
    return note_json(note_id, version.note, version=version.version)


def _typed(note: Json) -> Mapping[str, str]:
    """Return what the fields of the form hold for a note."""
    return {
        "content": note["content"],
        "type": note["type"],
        "topic": str(note["topic"]),
        "importance": str(note["importance"]),
        "keywords": "\n".join(note["keywords"]),
        "ends": NEVER if note["is_anchor"] else WITH_SESSION if note["scope"] == "session" else FADES,
    }


def _sent(form: Mapping[str, str], begins: Mapping[str, str]) -> dict[str, str]:
    """Return what a form was sent with; fields that it lacks are as it began.

    Raises:
        InvalidArgument: the note would say nothing.
    """
    sent = {name: form.get(name, value).replace("\r\n", "\n").strip() for name, value in begins.items()}
    if not sent["content"]:
        raise InvalidArgument("content is empty: say what is true, or forget the note", field="content")
    return sent


def _arguments(sent: Mapping[str, str]) -> Json:
    """Return what fields say as the tools take it, so far as something is typed.

    Raises:
        InvalidArgument: a field holds nothing that it may.
    """
    if sent.get("ends") and sent["ends"] not in _ENDS:
        raise InvalidArgument(f"ends must be one of {', '.join(_ENDS)}", field="ends")
    arguments: Json = {name: sent[name] for name in ("content", "type", "topic") if sent.get(name)}
    if sent.get("importance"):
        arguments["importance"] = _share(sent["importance"])
    if keywords := [line.strip() for line in sent.get("keywords", "").splitlines() if line.strip()]:
        arguments["keywords"] = keywords
    return arguments | _ENDS.get(sent.get("ends", ""), {})


def _share(text: str) -> float:
    """Return the number in a field; its decimals may follow a comma."""
    try:
        return float(text.replace(",", "."))
    except ValueError as error:
        raise InvalidArgument("importance must be a number from 0 to 1", field="importance") from error


async def form(desk: Desk, request: Request) -> Page:
    """Show the form with what a note says now, or said in an earlier version."""
    return _form(desk, await _noted(desk, request), request)


def _form(desk: Desk, noted: _Note, request: Request, sent: Mapping[str, str] | None = None) -> Page:
    return "note_correct.html", {
        "note": noted.now,
        "begins": noted.begins,
        "from_version": noted.from_version,
        "kinds": list(dict.fromkeys((noted.now["type"], *KINDS))),
        "has_session": noted.version.note.session_id is not None,
        **_bounds(desk),
        **({} if sent is None else {"sent": sent}),
    }


def _bounds(desk: Desk) -> Json:
    return {
        "longest": desk.settings.notes.content_characters,
        "longest_reason": MAX_REASON,
        "lasting": PERMANENT_IMPORTANCE,
        "ends": ENDS,
    }


async def correct(desk: Desk, request: Request, form: Mapping[str, str]) -> str | Page:
    """Show what a correction would change; once that is confirmed, make it.

    The form sent again changes nothing more: it names the version that its page showed.

    Raises:
        InvalidArgument: nothing differs from what the note says now, or a field holds nothing that it may.
        ToolRefused: the tool refuses; so it does where the note has another version meanwhile.
    """
    noted = await _noted(desk, request)
    sent = _sent(form, noted.begins)
    if "again" in form:
        return _form(desk, noted, request, {**sent, "reason": form.get("reason", "")})
    now, is_confirmed = _typed(noted.now), "confirmed" in form
    version = number_of(form.get("version"), default=noted.version.version)
    seen = next((_typed(_shown(noted.note_id, one)) for one in noted.stands.versions if one.version == version), now)
    # What is as its page showed it stays out: so keywords and subject follow the text from which they came.
    changed = {name: value for name, value in sent.items() if name == "content" or value != seen[name]}
    answer = await desk.call(
        "amend",
        agentId=desk.agent,
        id=noted.note_id,
        version=version,
        reason=form.get("reason", "").strip() or "corrected in the console",
        dryRun=None if is_confirmed else True,
        **_arguments(changed),
    )
    names = names_of(desk)
    if is_confirmed:
        done = "held" if answer.get("held") else "corrected" if answer["success"] else "same"
        changed_id = answer["fragment"]["id"] if answer["success"] else noted.note_id
        return query(f"/notes/{changed_id}", names, done=done, other=answer.get("existingId"))
    would_be = _typed(answer["fragment"])
    if would_be == now:
        raise InvalidArgument("content and all else is as the note says it now: change something", field="content")
    return "note_confirm.html", {
        "names": names,
        "note": noted.now,
        "kept_at": to_rfc3339(noted.version.at),
        "speaker": noted.version.speaker,
        "participants": noted.stands.participants,
        "parts": await asyncio.to_thread(differences, now["content"], would_be["content"]),
        "changed": [
            (label, _in_words(name, now[name]), _in_words(name, would_be[name]))
            for name, label in _LABELS.items()
            if now[name] != would_be[name]
        ],
        "is_held": answer.get("held", False),
        "redacted": answer.get("redacted") or {},
        "from_version": noted.from_version,
        "hidden": {**sent, "reason": form.get("reason", ""), "version": noted.version.version},
    }


def _in_words(name: str, value: str) -> str:
    """Return what a field holds as a line says it."""
    return ENDS[value] if name == "ends" else ", ".join(value.splitlines())


async def new_form(desk: Desk, _request: Request) -> Page:
    """Ask what a new note says, and for whom it is."""
    desk.principal.need_api("agent")
    return "note_new.html", {
        "begins": {"content": "", "type": "", "topic": "", "importance": "", "keywords": "", "ends": FADES},
        "kinds": ["", *KINDS],
        "has_session": False,
        **_bounds(desk),
    }


async def add(desk: Desk, _request: Request, form: Mapping[str, str]) -> str:
    """Keep the note that a form says. The form sent again keeps no other."""
    for_whom = form.get("for", "").strip()
    sent = {name: form.get(name, "").replace("\r\n", "\n").strip() for name in ("content", *_LABELS)}
    if not sent["content"]:
        raise InvalidArgument("content is empty: say what is to be remembered", field="content")
    answer = await desk.call(
        "remember",
        agentId=for_whom,
        idempotencyKey=Visitor.form_id(form["form_token"]),
        **_arguments(sent),
    )
    done = "held" if answer.get("held") else "added" if answer["created"] else "kept"
    return query(f"/notes/{answer['id']}", [for_whom] if for_whom else (), done=done)


ROUTES: Routes = (
    PageRoute("/notes/new", new_form, ("append",), is_as_somebody=True),
    FormRoute("/notes/new", add, Form(new_form, FIELDS)),
    PageRoute("/notes/{note_id}/correct", form, is_as_somebody=True),
    FormRoute("/notes/{note_id}/correct", correct, Form(form, FIELDS)),
)
