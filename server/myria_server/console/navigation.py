"""What the navigation of the console holds for a visitor: the parts that its key may open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from myria.access.principal import ApiName, Principal, Role


@dataclass(frozen=True, kw_only=True, slots=True)
class NavigationItem:
    """A part of the console: its first page, its name, and what a key needs of each to open it."""

    place: str
    name: str
    apis: tuple[ApiName, ...]
    roles: tuple[Role, ...]

    def is_open_to(self, principal: Principal) -> bool:
        """Tell whether a visitor may open the section."""
        return not principal.faces.isdisjoint(self.apis) and not principal.roles.isdisjoint(self.roles)


_SECTIONS = (
    NavigationItem(place="/ask", name="Ask", apis=("core",), roles=("read",)),
    NavigationItem(place="/topics", name="Topics", apis=("core",), roles=("read",)),
    NavigationItem(place="/notes", name="Notes", apis=("agent",), roles=("read",)),
    NavigationItem(place="/people", name="People", apis=("core",), roles=("read",)),
    NavigationItem(place="/changes", name="Changes", apis=("core", "admin"), roles=("read", "admin")),
    NavigationItem(place="/review", name="Review", apis=("admin",), roles=("admin",)),
    NavigationItem(place="/operations", name="Operations", apis=("admin",), roles=("admin",)),
)
_PEOPLE = _SECTIONS[3]
_ERASE = NavigationItem(place="/people/erase", name="Erase", apis=("admin",), roles=("erase",))
"""Where somebody erases who may not look: otherwise the page of a person leads there."""


_SECTION_OF = {
    "events": "ask",
    "erasures": "people",
    "keys": "operations",
    "settings": "operations",
    "audit": "operations",
    "audit.jsonl": "operations",
}
"""The section of a page that is in one of another name, each by the first part of its address."""


def section_of(path: str, sections: Sequence[NavigationItem]) -> NavigationItem | None:
    """Return which of some sections the page at a path is in; None where it is in none of them.

    Args:
        path: below the console's address.
    """
    part = path.split("/")[1] if "/" in path else ""
    place = _SECTION_OF.get(part, part)
    return next((section for section in sections if section.place.split("/")[1] == place), None)


def open_to(principal: Principal) -> Sequence[NavigationItem]:
    """Return the sections that a visitor may open, in the order in which every page names them."""
    sections = [section for section in _SECTIONS if section.is_open_to(principal)]
    if _ERASE.is_open_to(principal) and _PEOPLE not in sections:
        sections.append(_ERASE)
    return sections
