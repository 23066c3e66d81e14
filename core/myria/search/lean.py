"""The lean view of answers: the same tree with only what a model reads, without hashes, scores, counts and lists."""

from __future__ import annotations

from typing import Any

from myria.log.payloads import speaker_of, whole_text

Json = dict[str, Any]

_KEPT = ("type", "truncated", "superseded", "superseded_by", "change", "alike")
_LEFT_OUT = ("constraints", "counts", "walk")


def lean_node(node: Json) -> Json:
    """Return one node, without its children, as the lean view shows it."""
    if node["kind"] in ("event", "event_ref"):
        payload = node.get("payload")
        speaker = node.get("speaker") if payload is None else speaker_of(payload)
        shown: Json = {"kind": node["kind"], "event_id": node["event_id"], "timestamp": node["timestamp"]}
        if speaker is not None:
            shown["speaker"] = speaker
        shown["text"] = node["snippet"] if payload is None else whole_text(payload)
        return shown | {name: node[name] for name in _KEPT if node.get(name) is not None}
    if node["kind"] == "root":
        return {"kind": "root", "label": node["label"]}
    return {name: node[name] for name in ("kind", "topic_id", "label", "summary", "first_at", "last_at")}


def lean_tree(node: Json) -> Json:
    """Return a tree as the lean view shows it."""
    shown = lean_node(node)
    if "children" in node:
        shown["children"] = [lean_tree(child) for child in node["children"]]
    return shown


def lean_answer(answer: Json) -> Json:
    """Return a query's answer as the lean view shows it: what is null is left out too."""
    shown = {name: value for name, value in answer.items() if name not in _LEFT_OUT and value is not None}
    return {**shown, "root": lean_tree(answer["root"])}
