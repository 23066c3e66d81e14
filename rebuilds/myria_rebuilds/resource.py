"""What the resource is called in the API server."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

GROUP: Final = "myria.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
PLURAL: Final = "myriarebuilds"
KIND: Final = "MyriaRebuild"
