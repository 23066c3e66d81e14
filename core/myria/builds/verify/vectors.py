"""Vectors: those of the log's events, complete as far as they are said to be, each of the text that its event says."""

from __future__ import annotations

import orjson

from myria.builds.verify.examination import Examination
from myria.builds.verify.report import Check
from myria.db.queries import sql
from myria.index.embeddings.keeping import text_digest
from myria.log.payloads import searchable_text, whole_text


async def kept(exam: Examination, check: Check) -> None:
    """Every vector is of an event that may have one, under its scope, with its model's dimensions; none is missing."""
    check.examined = await exam.count("verify.count_vectors")
    for row in await exam.connection.fetch(sql("verify.vectors_differ"), exam.tenant):
        check.fail(f"the vector of event {row['event_seq']} by {row['model']} {row['what']}")
    for row in await exam.connection.fetch(sql("verify.texts_of_vectors"), exam.tenant):
        if row["others"]:
            check.fail(f"{row['others']} vectors by {row['model']} have other than its {row['size']} dimensions")
        if row["unsaid"]:
            check.fail(f"{row['unsaid']} vectors by {row['model']} are of texts that no event says")


async def digests(exam: Examination, check: Check) -> None:
    """Every vector stands under the digest of the text that its event says."""
    async for row in exam.stream(check, "verify.vector_digests"):
        payload = orjson.loads(row["payload"])
        # Earlier releases read nothing but the text itself, and their vectors stay.
        if row["digest"] not in {text_digest(whole_text(payload)), text_digest(searchable_text(payload))}:
            check.fail(f"the vector of event {row['event_seq']} by {row['model']} is of another text")
