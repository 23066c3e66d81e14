"""Finds the parts of a text that are no prose, and so no subject: code, addresses, identifiers, tags, quoted mail."""

from __future__ import annotations

import re
from functools import cache

_NOT_PROSE = r"""
    ```.*?(?:```|\Z)                                # a block of code
    | ^[ \t]*>[^\n]*                                # a quoted line
    | ^[ \t]*(?i:(?:(?:kind|best|warm|many)[ ])?(?:regards|wishes)|best|sincerely|yours[ ]\w+|cheers|cordialement
        |(?:mit[ ]freundlichen|freundliche|viele|liebe|beste|herzliche)[ ]gr(?:ü|ue)(?:ß|ss)en?|atentamente|un[ ]saludo
        |saludos(?:[ ]cordiales)?|atenciosamente|cumprimentos|(?:cordiali|distinti)[ ]saluti|с[ ]уважением
        |(?:met[ ])?vriendelijke[ ]groet(?:en)?)[ \t]*[,.!]?[ \t]*\n.*\Z  # a signature
    | ^(?:commit[ ][\da-f]{7,}|(?:Author|Date|Merge|From|To|Cc|Received|Host|Accept|Content-\w+|Message-ID):[ ])[^\n]*$
    | \b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?[ ]+\d{1,2}\b
    | ^[ \t]*[^\s{\["][^\n]*[;{}][ \t]*$            # a line of code
    | ^[ \t]*[$%][ ][^\n]*$                         # a command
    | `[^`\n]{1,200}`                               # code within a line
    | "[^"\n]{1,80}"[ \t]*:(?=[ \t]*["\[{\-\dtfn])  # a key of JSON
    | \b(?:https?|ftp|wss?|file)://\S+              # addresses
    | \bwww\.\S+
    | (?:\#\w+[ \t]*){2,}(?=\W|\Z) | \#\w+[ \t]*$   # tags for themselves
    | @\w[\w.]*                                     # who is spoken to
    | (?<![^\s"'(\[{<,;=])                          # from the beginning of a word on:
      (?:
        [\w.+-]+@[\w-]+\.[\w.-]+                    # a mail address
        | [~.]{0,2}/[\w.-][\w./-]*                  # paths
        | [\w.-]+/[\w.-]*[._/\d][\w./-]*
        | \w*[_\\=][\w\\=.]*                        # snake_case, assignments
        | \w+(?:::|->|=>)[\w:]*                     # names with their module
        | \w+\([^)\n]{0,80}\)?                      # calls
        | \w+[.][a-z]\w*(?:\.\w+)*                  # file names, members, hosts
        | (?=[\w.:+-]*\d)(?=[\w.:+-]*[^\W\d])[\w.:+-]{10,}  # long mixtures of letters and digits
        | (?=[a-f]*\d)(?=\d*[a-f])[\da-f]{7,}\b     # hexadecimal digests
        | [a-z]{3}[a-z\d]*[A-Z][a-z]\w*             # camelCase
      )
    | \b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL|FAILED|PASSED|PASS|FAIL|TODO|FIXME|RT)\b
    | \b(?:SELECT|INSERT|UPDATE|DELETE)[ ][^\n]*?\b(?:FROM|INTO|SET|VALUES)\b[^\n]*
"""


@cache
def _spans() -> re.Pattern[str]:
    return re.compile(_NOT_PROSE, re.VERBOSE | re.DOTALL | re.MULTILINE)


_MARKS = r"`<>{}\[\]|$#@/_\\=~^*(\d\n;"
_SHOUTED = "TR|DE|IN|NO|WA|ER|FA|CR|PA|TO|FI|RT|SE|UP"
"""First two letters of the words in capitals that mark logs and SQL."""

_SUSPECT = re.compile(
    rf"[{_MARKS}.:A-Zw]"
    rf"(?:(?<=[{_MARKS}])|(?<=\w[.:])(?=\w)|(?<=[a-z][A-Z])|(?<=\b(?:{_SHOUTED}))|(?<=\bw)(?=ww))"
)
"""A sign that every span of `_NOT_PROSE` has, except the header of a mail alone on one line, which stays: most remarks
have no sign, and need no closer look.

A mark, a stop or colon inside a word, a capital after a small letter, the beginning of a word that stands in logs, or
"www". It begins with a set of characters, which `re` looks for many times faster than for one of several beginnings.
"""

_CODE_MARKS = re.compile(r"[{}\[\]<>=;|\\_/`$#~^*]|::|->|\w\(|\d+")
_LETTERS = re.compile(r"[^\W\d_]")
_LONGEST_SHOUT = 12
_MARKS_ARE_FEW = 4
"""Fewest letters per mark of code or number in prose."""


def may_be_no_prose(text: str) -> bool:
    """Tell whether a text may have a part that is no prose; if not, no part of the text has one either."""
    return _SUSPECT.search(text) is not None


def not_prose(text: str) -> list[tuple[int, int]]:
    """Return the spans of a text that are no prose, in order, without overlaps."""
    return [match.span() for match in _spans().finditer(text)]


def reads_as_prose(sentence: str) -> bool:
    """Tell whether a sentence on one line is mostly words, not code, numbers and addresses."""
    if sentence.isupper() and len(sentence) > _LONGEST_SHOUT:
        return False
    if not may_be_no_prose(sentence):
        return True
    prose = _spans().sub("", sentence)
    letters = len(_LETTERS.findall(prose))
    return 2 * letters >= len(_LETTERS.findall(sentence)) and letters >= _MARKS_ARE_FEW * len(
        _CODE_MARKS.findall(prose)
    )
