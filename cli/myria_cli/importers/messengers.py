"""Chats between people: Slack's ZIP, Telegram's `result.json`, WhatsApp's text files."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from typing import Any

from myria.errors import InvalidArgument, InvalidTimestamp
from myria_cli.importers.files import Source
from myria_cli.importers.records import (
    NO_TEXT,
    NOTICE,
    Message,
    Record,
    identified,
    moment,
    objects,
    text_of,
)

_SLACK_LISTS = ("channels.json", "groups.json", "dms.json", "mpims.json")
_SLACK_WRITTEN_SUBTYPES = (None, "", "bot_message", "file_comment", "file_share", "me_message", "thread_broadcast")
"""Subtypes of Slack messages that a person or bot wrote; all others are notices, such as "joined the channel"."""

_SLACK_MARK = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_SLACK_ELEMENTS = {
    "user": "<@{user_id}>",
    "channel": "<#{channel_id}>",
    "broadcast": "<!{range}>",
    "emoji": ":{name}:",
    "link": "<{url}|{text}>",
    "date": "{fallback}",
    "actions": "",
}
"""By type of block element without text of its own: the mark that a message's text would have in its place.

Buttons ("actions") add no text.
"""

_MORNING = r"a\.?\s?m\.?|오전|上午|凌晨|早上|午前|ص|π\.?μ\.?|de\."
_AFTERNOON = r"p\.?\s?m\.?|오후|下午|中午|晚上|午後|م|μ\.?μ\.?|du\."
_HALF = rf"(?:(?P<morning_{{0}}>{_MORNING})|(?P<afternoon_{{0}}>{_AFTERNOON}))"
_DATE = r"(?P<date>\d{1,4}\s?\u200f?[./-]\s?\d{1,2}\s?\u200f?[./-]\s?\d{1,4})\.?(?:\sг\.)?"
_TIME = (
    rf"(?:{_HALF.format('before')}\s?)?"
    r"(?P<hour>\d{1,2})[:.](?P<minute>\d{2})(?:[:.](?P<second>\d{2}))?"
    rf"(?:\s?{_HALF.format('after')})?(?:\sч\.)?"
)
_END = r"(?:\]\s|\s[-\u2013]\s)(?P<rest>.*)$"
_WHATSAPP_LINES = (
    re.compile(rf"^\[?{_DATE}[,،]?\s(?:klo\s|kl\.\s|à\s|um\s)?{_TIME}{_END}", re.IGNORECASE),
    re.compile(rf"^\[?{_TIME},\s{_DATE}{_END}", re.IGNORECASE),
)
"""How a message's first line begins: date and time, or time and date; the phone's language decides.

A line whose word for a.m. or p.m. is not among the known ones does not match: guessed, it would put every afternoon
into the morning.
"""
_BUDDHIST, _BUDDHIST_YEARS = 2400, 543
"""A year above the first is of the Buddhist calendar, which is the second ahead (Thai phones write it)."""

_MARKS = "\u200e\u200f\u202a\u202b\u202c\u2066\u2067\u2068\u2069\ufeff"
"""Marks of writing direction that WhatsApp puts around names, and before texts of its own."""

_NO_MARKS = dict.fromkeys(map(ord, _MARKS))
_WHATSAPP_ADDED = re.compile(r"\s*(?:\u200e<[^<>]*>|<This message was edited>)$")
_WHATSAPP_MEDIA = re.compile(
    r"^(?:<[^<>]*>|This message was deleted\.?|You deleted this message\.?|[A-Z]{3}-\d{8}-WA\S+ \(.*\))$"
)
_LONGEST_NAME = 100


def slack(source: Source) -> Iterator[Record]:
    """Yield the messages of a Slack export: a folder or ZIP with `users.json` and a folder for each channel."""
    name_of_id: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    days: dict[str, list[str]] = {}
    for name in source.names(".json"):
        path_parts = name.split("/")
        if path_parts[-1] in ("users.json", "org_users.json"):
            name_of_id |= {str(user.get("id")): _slack_name(user) for user in objects(source.json(name))}
        elif path_parts[-1] in _SLACK_LISTS:
            for entry in objects(source.json(name)):
                channel_name = name_of_id[str(entry.get("id"))] = text_of(entry.get("name")) or str(entry.get("id"))
                members[channel_name] = [member for member in entry.get("members") or [] if isinstance(member, str)]
        elif len(path_parts) > 1:
            days.setdefault(path_parts[-2], []).append(name)
    if not days:
        raise InvalidArgument("a Slack export is a folder or ZIP with a folder of days for each channel", field="file")
    for channel, names in days.items():
        items = [item for name in names for item in objects(source.json(name))]
        member_ids = {*members.get(channel, ()), *(str(item["user"]) for item in items if item.get("user"))}
        people = tuple(sorted(member_ids | {name_of_id[user] for user in member_ids if user in name_of_id}))
        for item in items:
            yield _slack_message(item, channel, name_of_id, people)


def _slack_message(
    item: Mapping[str, Any], channel: str, name_of_id: Mapping[str, str], people: tuple[str, ...]
) -> Record:
    """Convert one item of a Slack export into a record.

    An item that cannot be imported becomes a record too: why it is left out, or the error, returned and not raised.

    Args:
        name_of_id: names by the ids of users and channels.
        people: names and ids of the channel's members, who may all see the message.
    """
    if item.get("type") != "message" or item.get("subtype") not in _SLACK_WRITTEN_SUBTYPES:
        return NOTICE
    text = _slack_text(_slack_words(item), name_of_id)
    if not text:
        return NO_TEXT
    stamp, user = text_of(item.get("ts")), text_of(item.get("user"))
    try:
        seconds, _, fraction = stamp.partition(".")
        at = moment(seconds) + timedelta(microseconds=int(fraction[:6].ljust(6, "0")))
    except (InvalidTimestamp, ValueError):
        return InvalidTimestamp("a message of Slack has `ts`, seconds since 1970", field="ts")
    # A thread's first message keeps the channel as its conversation. It has no `thread_ts` until somebody replies, so
    # with the thread in its key a later export would add it a second time.
    thread = "" if item.get("thread_ts") == stamp else text_of(item.get("thread_ts"))
    profiles = [profile for field in ("user_profile", "bot_profile") if isinstance(profile := item.get(field), dict)]
    speaker_name = name_of_id.get(user) or text_of(item.get("username")) or next(map(_slack_name, profiles), "")
    return Message(
        at=at,
        channel=f"slack:{channel}",
        conversation=f"{channel}/{thread}" if thread else channel,
        key=stamp,
        speaker=speaker_name or user or "bot",
        text=text,
        people=people,
    )


def _slack_name(user: Mapping[str, Any]) -> str:
    """Return a user's name: the real name, else the display or account name, else the id."""
    profile = user.get("profile")
    name_fields = {**user, **profile} if isinstance(profile, dict) else user
    fields = ("real_name", "display_name", "name")
    return next((name for name in map(text_of, map(name_fields.get, fields)) if name), str(user.get("id")))


def _slack_words(item: Mapping[str, Any]) -> str:
    """Return a message's text; where it has none of its own, as of many bots, what its blocks or attachments say."""
    text = text_of(item.get("text"))
    if text and text != "This content can't be displayed.":
        return text
    texts = [_slack_block(block) for block in objects(item.get("blocks"))]
    for attachment in [] if any(texts) else objects(item.get("attachments")):
        parts = [text_of(attachment.get(field)) for field in ("pretext", "title", "text")]
        parts += [_slack_block(block) for block in objects(attachment.get("blocks"))]
        parts += [
            f"{field.get('title') or ''}: {field.get('value') or ''}" for field in objects(attachment.get("fields"))
        ]
        texts += list(filter(None, parts)) or [text_of(attachment.get("fallback"))]
    return "\n".join(filter(None, texts)) or text


def _slack_block(block: Mapping[str, Any]) -> str:
    """Return the text of a block and of the blocks within it."""
    kind, text = str(block.get("type")), block.get("text")
    if kind in _SLACK_ELEMENTS:
        return _SLACK_ELEMENTS[kind].format_map(defaultdict(str, block))
    block_text = text.get("text") if isinstance(text, dict) else text
    part_texts = [_slack_block(part) for field in ("fields", "elements") for part in objects(block.get(field))]
    is_line = kind.startswith("rich_text_") and kind != "rich_text_list"
    return ("" if is_line else "\n").join(filter(None, [str(block_text or ""), *part_texts]))


def _slack_text(text: str, name_of_id: Mapping[str, str]) -> str:
    """Replace the marks in a Slack text: ids of people and channels by their names, links by label and address."""

    def plain_text(mark: re.Match[str]) -> str:
        sign, target, label = mark.groups()
        if sign == "!":  # "^" marks groups and dates, whose labels are complete
            return label if label and "^" in target else f"@{label or target}"
        if sign:
            return sign + (name_of_id.get(target) or label or target)
        target = re.sub(r"^(?:mailto|tel):", "", target)
        return target if not label or label in target else f"{label} ({target})"

    return html.unescape(_SLACK_MARK.sub(plain_text, text))


def telegram(source: Source, zone: tzinfo = UTC) -> Iterator[Record]:
    """Yield the messages of Telegram Desktop's JSON export, of one chat or of a whole account.

    Args:
        zone: the zone of `date` in old exports, which have no `date_unixtime`.
    """
    refusal = InvalidArgument(
        "a Telegram export is result.json with `messages`, or with `chats.list`; export as JSON, not HTML", field="file"
    )
    if not (names := source.names(".json")):
        raise refusal
    # Beside result.json lie the files that people sent, which may be JSON too.
    for name in [name for name in names if name.endswith("result.json")] or names:
        content = source.json(name)
        chat_lists = [content.get(field) for field in ("chats", "left_chats")] if isinstance(content, dict) else []
        account_chats = [chat for chats in chat_lists if isinstance(chats, dict) for chat in objects(chats.get("list"))]
        chats_to_read = account_chats if any(isinstance(chats, dict) for chats in chat_lists) else [content]
        if not all(isinstance(chat, dict) and isinstance(chat.get("messages"), list) for chat in chats_to_read):
            raise refusal
        for chat in chats_to_read:
            yield from _telegram_chat(chat, zone)


def _telegram_chat(chat: Mapping[str, Any], zone: tzinfo) -> Iterator[Record]:
    """Yield one record for each item of a chat; only the first message carries the chat's title."""
    chat_id = str(chat.get("id") or identified(str(chat.get("name"))))
    items = list(objects(chat.get("messages")))
    messages = [item for item in items if item.get("type") == "message"]
    people = tuple(sorted({text_of(item.get(field)) for item in messages for field in ("from", "from_id")} - {""}))
    title = text_of(chat.get("name")) or None
    for item in items:
        text = _telegram_text(item.get("text"))
        if item.get("type") != "message" or not text:
            yield NO_TEXT if item.get("type") == "message" else NOTICE
            continue
        try:
            at = _telegram_time(item, zone)
        except InvalidTimestamp as error:
            yield error
            continue
        yield Message(
            at=at,
            channel="telegram",
            conversation=chat_id,
            key=str(item.get("id")),
            speaker=text_of(item.get("from")) or text_of(item.get("from_id")) or "deleted account",
            text=text,
            people=people,
            title=title,
        )
        title = None


def _telegram_text(text: Any) -> str:
    parts = text if isinstance(text, list) else [text]
    return "".join(part.get("text", "") if isinstance(part, dict) else str(part or "") for part in parts).strip()


def _telegram_time(item: Mapping[str, Any], zone: tzinfo) -> datetime:
    """Return when a message was sent, in the exporter's zone.

    `date` is the exporter's local time, `date_unixtime` the same moment in UTC; their difference is the zone's offset.
    """
    if not item.get("date_unixtime"):
        return moment(item.get("date"), zone)
    at = moment(item["date_unixtime"])
    try:
        offset = moment(item.get("date")) - at
        return at.astimezone(timezone(timedelta(minutes=round(offset.total_seconds() / 60))))
    except (InvalidTimestamp, ValueError):
        return at


def whatsapp(source: Source, zone: tzinfo = UTC) -> Iterator[Record]:
    """Yield the messages of WhatsApp's exported chats: text files, or the ZIP that holds one.

    Args:
        zone: where the phone was: the lines give local time.
    """
    are_read = False
    for name in source.names(".txt"):
        try:
            lines = _whatsapp_lines(source.text(name))
        except InvalidArgument as error:  # a file that somebody sent in the chat is beside it in the ZIP
            are_read = True
            yield error
            continue
        if lines:
            are_read = True
            yield from _whatsapp_chat(lines, zone)
    if not are_read:
        raise InvalidArgument(
            "no line begins as WhatsApp's do, such as `[12/03/2026, 19:05:33] Ana: ...` or `12/03/2026, 19:05 - Ana: "
            "...`; export the chat as text",
            field="file",
        )


def _whatsapp_lines(text: str) -> list[tuple[re.Match[str], list[str]]]:
    """Group a chat's lines by message: the match of the line with date and time, and the lines that continue it."""
    messages: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        line = line.replace("\u202f", " ").replace("\xa0", " ")
        without_marks = line.lstrip(_MARKS)
        match = next(filter(None, (pattern.match(without_marks) for pattern in _WHATSAPP_LINES)), None)
        if match is not None:
            messages.append((match, []))
        elif messages:
            messages[-1][1].append(line)
    return messages


def _whatsapp_chat(lines: Sequence[tuple[re.Match[str], list[str]]], zone: tzinfo) -> Iterator[Record]:
    """Yield one record for each message of a chat.

    The export names neither its chat nor its messages, so both are identified by date, time and speaker.

    Args:
        lines: from `_whatsapp_lines`.
    """
    first = lines[0][0]
    is_american = (first["morning_after"] or first["afternoon_after"] or "").isupper() and first["date"][0] != "0"
    order = _date_order([_numbers(match) for match, _ in lines], is_american)
    utterances = [_speaker_and_text(match["rest"]) for match, _ in lines]
    people = tuple(sorted({utterance[0] for utterance in utterances if utterance is not None}))
    chat_id = ""
    repeats: dict[str, int] = {}
    for (match, continuation), utterance in zip(lines, utterances, strict=True):
        try:
            at = _whatsapp_time(match, order).replace(tzinfo=zone)
        except ValueError:
            yield InvalidTimestamp(f"{match['date']} is no date", field="timestamp")
            continue
        # Year, month and day sorted by size: a later export may show that the number taken for the month is the day,
        # and the same message must keep its key.
        stamp = f"{sorted((at.year, at.month, at.day))} {at.time()}"
        chat_id = chat_id or identified("whatsapp", stamp)
        if utterance is None:
            yield NOTICE
            continue
        speaker, beginning = utterance
        # A speaker's messages of one minute are numbered; a deleted message leaves a line, so the others keep theirs.
        key = identified(stamp, speaker)
        repeats[key] = repeats.get(key, 0) + 1
        text = _WHATSAPP_ADDED.sub("", "\n".join([beginning, *continuation])).translate(_NO_MARKS).strip()
        if not text:
            yield NO_TEXT
            continue
        yield Message(
            at=at,
            channel="whatsapp",
            conversation=chat_id,
            key=f"{key}-{repeats[key]}",
            speaker=speaker,
            text=text,
            people=people,
        )


def _speaker_and_text(rest: str) -> tuple[str, str] | None:
    """Split the rest of a line into speaker and text; return None if it names no speaker.

    The text is empty where WhatsApp wrote it itself, as for media that were left out.
    """
    speaker, colon, text = rest.partition(":")
    speaker = speaker.translate(_NO_MARKS).strip().lstrip("~ ")
    is_name = 0 < len(speaker) <= _LONGEST_NAME and not re.search(r"[\"\u201c\u201d]", speaker)
    is_from_whatsapp = text.startswith(" \u200e") or _WHATSAPP_MEDIA.match(text.strip())
    return (speaker, "" if is_from_whatsapp else text.strip(" ")) if colon and is_name else None


def _date_order(dates: Sequence[Sequence[int]], is_american: bool) -> tuple[int, int, int]:
    """Return the positions of year, month and day in a chat's dates; the phone's language decides their order.

    A number above 12 is a day. If no number is, the order with fewer steps back in time wins; of equal ones the order
    whose dates span less time; then the day comes first, as in most of the world, unless `is_american`.
    """
    if any(date[0] > 31 for date in dates):
        return 0, 1, 2

    def implausibility(order: tuple[int, int, int]) -> tuple[int, int, int]:
        # Year, month and day of 372 and 31 days are near enough to compare spans.
        ordered = [(date[order[0]], date[order[1]], date[order[2]]) for date in dates]
        days = [372 * year + 31 * month + day for year, month, day in ordered]
        no_months = sum(month > 12 for _, month, _ in ordered)
        return no_months, sum(after < before for before, after in pairwise(ordered)), max(days) - min(days)

    orders = (2, 1, 0), (2, 0, 1)
    return min(reversed(orders) if is_american else orders, key=implausibility)


def _whatsapp_time(match: re.Match[str], order: tuple[int, int, int]) -> datetime:
    """Return the local time of a line, without a zone."""
    numbers = _numbers(match)
    year, month, day = (numbers[position] for position in order)
    if year < 100:
        year += 2000
    elif year > _BUDDHIST:
        year -= _BUDDHIST_YEARS
    hour = int(match["hour"])
    if match["afternoon_before"] or match["afternoon_after"]:
        hour = hour % 12 + 12
    elif match["morning_before"] or match["morning_after"]:
        hour %= 12
    return datetime(  # noqa: DTZ001 - the caller knows the zone
        year, month, day, hour, int(match["minute"]), int(match["second"] or 0)
    )


def _numbers(match: re.Match[str]) -> list[int]:
    """Return the three numbers of a line's date; their digits may be of any script."""
    return [int(number) for number in re.findall(r"\d+", match["date"])]
