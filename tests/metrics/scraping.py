"""Scrapes, read as Prometheus reads them and compared with the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from myria_monitoring.catalogue import BY_NAME


@dataclass(frozen=True, slots=True)
class Samples:
    """Every sample of a scrape: `samples["name", "label=value", ...]`, labels in the order of the alphabet."""

    values: dict[tuple[str, ...], float]

    def __getitem__(self, key: str | tuple[str, ...]) -> float:
        return self.values[(key,) if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self.values)

    def __contains__(self, key: object) -> bool:
        return ((key,) if isinstance(key, str) else key) in self.values


def samples(text: str) -> Samples:
    """Return the samples of a scrape.

    Fails when it is not valid, when a family is there twice, or is not what the catalogue says of it.
    """
    values: dict[tuple[str, ...], float] = {}
    families: set[str] = set()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in families, f"{name} is there twice"
        families.add(name)
        if not name.startswith(("process_", "python_")):
            told = BY_NAME[name]
            assert (family.type, family.documentation) == (told.type, told.meaning), name
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in {"le", "tenant"}}
            assert name.startswith("process_") or set(labels) == set(BY_NAME[name].labels), (name, labels)
            key = (sample.name, *sorted(f"{label}={value}" for label, value in sample.labels.items()))
            assert key not in values, key
            values[key] = sample.value
    return Samples(values)
