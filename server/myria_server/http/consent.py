"""The page on which a person signs in with a key and allows a program to use it: plain HTML, without scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse

from myria.access.grants import Client

_STYLE = """
:root{color-scheme:light dark;font:1rem/1.5 system-ui,sans-serif}
body{max-width:34rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25}
input,button{font:inherit;padding:.5rem .75rem;min-height:2.75rem;box-sizing:border-box}
input,button{border:1px solid;border-radius:.375rem}
input{width:100%}
label{font-weight:600}
#about{margin:0 0 .5rem}
.answers{display:flex;flex-wrap:wrap;gap:.75rem;margin:1.25rem 0}
button{flex:1 1 8rem}
.allow{background:#2563d9;border-color:#2563d9;color:#fff;font-weight:600}
:focus-visible{outline:3px solid CanvasText;outline-offset:2px}
[role=alert]{border:2px solid #d03b3b;border-radius:.375rem;padding:.5rem .75rem}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_MEANINGS = {
    "append": "add events to the memory",
    "read": "read what the key may read",
    "admin": "steer builds and snapshots",
    "erase": "erase from the memory",
}


def consent_page(
    client: Client,
    parameters: Mapping[str, str],
    *,
    scopes: Sequence[str],
    resource: str,
    problem: str | None = None,
    status: int = 200,
) -> HTMLResponse:
    """Return the page of one authorization request.

    Args:
        parameters: those of the request, which the form sends back to be checked again.
        problem: what was wrong with the person's last answer; None the first time.
    """
    uri = parameters["redirect_uri"]
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in parameters.items()
    )
    scope_items = "".join(f"<li>{escape(_MEANINGS[scope])}</li>" for scope in scopes)
    alert = "" if problem is None else f'<p role="alert" id="problem">{escape(problem)}</p>'
    # Whoever hears or tabs through the page begins at its beginning, but for mending a mistake.
    key_attributes = ' aria-describedby="about"'
    if problem is not None:
        key_attributes = ' aria-describedby="problem about" aria-invalid="true" autofocus'
    body = f"""<h1>Allow {escape(client.name)} to use your memory?</h1>
{alert}<p>A program that calls itself <strong>{escape(client.name)}</strong> asks to use
<strong>{escape(resource)}</strong> with a key of yours. It would be able to:</p>
<ul>{scope_items}</ul>
<p>Nobody has checked who it is. You will be sent to <strong>{escape(place_of(uri))}</strong>. Go on only if you started
this yourself. It never sees the key, and can do nothing after the key is revoked.</p>
<form method="post" action="authorize">{hidden}
<label for="key">Your key</label>
<p id="about">It reads myr_..., and is sent to this server alone.</p>
<input id="key" name="key" type="password" autocomplete="current-password" spellcheck="false"{key_attributes}>
<p class="answers"><button class="allow" name="decision" value="allow">Allow</button>
<button name="decision" value="deny">Deny</button></p>
</form>"""
    title = f"Allow {client.name}?"
    return _page(title if problem is None else f"Problem: {title}", body, status=status)


def refusal_page(problem: str, *, status: int = 400) -> HTMLResponse:
    """Return the page of a request that cannot be answered to its client."""
    body = f'<h1>This cannot go on</h1><p role="alert">{escape(problem)}</p><p>Start again from your program.</p>'
    return _page("This cannot go on", body, status=status)


def place_of(uri: str) -> str:
    """Return the part of a redirect address by which a person can know the place."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else f"{parts.scheme}:"


def _page(title: str, body: str, *, status: int) -> HTMLResponse:
    # No form-action: browsers hold every redirect that follows a form to it, also those of the client's own site, which
    # nobody knows here. The page has one form, and everything in it is escaped.
    policy = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'"
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>"
    )
    headers = {
        "content-security-policy": policy,
        "x-frame-options": "DENY",
        "cache-control": "no-store",
        "referrer-policy": "same-origin",  # with no-referrer a browser would not say from which origin the form comes
    }
    return HTMLResponse(page, status_code=status, headers=headers)
