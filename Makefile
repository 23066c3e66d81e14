# Myria: every command a person needs. `make help` lists them; each is one or two lines on purpose.
#
#   PORT=9000 DATA_DIR=/some/folder DSN=postgresql://... make up
#   make test ARGS="tests/planning -x"
#   make check JOBS=4

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help venv venv-dev control-plane up demo check test integrations soak drill lint audit format bench wheel clients release lock docs chart clean

PYTHON ?=
PORT ?=
DATA_DIR ?=
DSN ?=
ONCE ?=
ARGS ?=
JOBS ?=

VENV := .venv
BIN := $(VENV)/bin
PLACE = $(if $(PORT),--port $(PORT)) $(if $(DATA_DIR),--data-dir "$(DATA_DIR)") $(if $(DSN),--dsn "$(DSN)")
CODE := core server operator builder_job rebuilds monitoring embedded cli migrations
# One test that hangs fails alone. Every test is named as it begins and as it ends, and the counts come last. What pytest
# compiles is kept.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -u -m pytest -v --durations=15 --timeout=900
# Workers take tests from each other until none is left; a part of the suite runs in one process unless JOBS says more.
SPREAD = -n $(or $(JOBS),$(if $(ARGS),0,auto)) --dist worksteal
# What `make check` leaves out: it needs a control plane, Prometheus, pods, other programs (PgBouncer, clients in other
# languages, a browser), or kills and drills whole installations; so do the tests marked `processes`.
HEAVY := kubernetes install image monitoring drills soak pgbouncer clients benchmarks/test_parts.py
# Where one cannot be had, the tests that need it say so and are skipped; CI does not let that pass.
CONTROL_PLANE = $(BIN)/python scripts/build_control_plane.py >/dev/null || [ -z "$$CI" ]
PROMETHEUS = $(BIN)/python scripts/get_prometheus.py >/dev/null || [ -z "$$CI" ]

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  Variables: PORT, DATA_DIR, DSN (up, demo), ONCE=1 (demo), ARGS (passed on), JOBS (check, test: processes), PYTHON (venv)."

venv: ## Make or repair .venv with what Myria needs to run (nothing to do when it is current).
	@python=$$(PYTHON="$(PYTHON)" sh scripts/find-python) && "$$python" scripts/make_venv.py run

venv-dev: ## The same with the tools for lint and test.
	@python=$$(PYTHON="$(PYTHON)" sh scripts/find-python) && "$$python" scripts/make_venv.py dev

up: venv ## Serve on this machine: embedded PostgreSQL, MCP, triggers and builder, until Ctrl-C.
	@exec $(BIN)/myria up $(PLACE) $(ARGS)

demo: venv ## The same with a sample conversation, three questions and their answer trees (ONCE=1 ends after them).
	@exec $(BIN)/myria demo $(PLACE) $(if $(filter-out 0,$(ONCE)),--once) $(ARGS)

control-plane: venv-dev ## Build a Kubernetes control plane for the tests, once, into the user's cache (minutes).
	@$(BIN)/python scripts/build_control_plane.py

check: venv-dev ## Run what needs no cluster or installation and starts no programs, with a part of cases and repetitions.
	MYRIA_TEST_CHECK=1 $(PYTEST) $(SPREAD) $(or $(ARGS),tests -m 'not processes' $(HEAVY:%=--ignore=tests/%))

test: venv-dev ## Run the whole suite (the long checks with a twentieth of their counts), slowest tests last.
	@$(if $(ARGS),,$(CONTROL_PLANE))
	@$(if $(ARGS),,$(PROMETHEUS))
	$(PYTEST) $(SPREAD) $(or $(ARGS),tests)

integrations: venv-dev ## Try each integration with its real framework, installed into the user's cache (minutes, once).
	MYRIA_TEST_INTEGRATIONS=$(or $(WANTED),all) $(PYTEST) $(or $(ARGS),tests/integrations)

soak: venv-dev ## Run the long checks with their full counts (hours of load; not part of CI).
	@$(if $(ARGS),,$(CONTROL_PLANE))
	MYRIA_TEST_SOAK=1 $(PYTEST) --timeout=14400 -m soak $(ARGS)

drill: venv ## Drill backup and restore, then an upgrade, on throw-away servers, and compare all data.
	$(BIN)/python scripts/drill_backup.py $(ARGS)
	$(if $(ARGS),,$(BIN)/python scripts/drill_upgrade.py)

lint: venv-dev ## Check style, types, import direction and the rules of the house.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy scripts benchmarks tests
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_house.py
	$(BIN)/python scripts/audit_lock.py

audit: venv-dev ## Look the lock's packages up in advisories on this machine (OSV_DATA: OSV's PyPI/all.zip, or a folder).
	$(BIN)/python scripts/audit_lock.py

format: venv-dev ## Rewrite the code in the house style.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv-dev ## Measure the cost model and write benchmarks/out/ (ARGS chooses sizes and parts).
	$(BIN)/python -m benchmarks $(ARGS)

wheel: venv-dev ## Build the wheel of Myria itself into dist/, for pip and uvx.
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .

clients: venv-dev ## Build the client packages into dist/: a wheel and a tarball for npm.
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist clients/python
	$(BIN)/python scripts/typescript_client.py pack dist

release: venv-dev ## Build all that a release publishes, from the commit, into dist/ (or RELEASE_DIR): docs/releasing.md.
	$(BIN)/python scripts/release.py "$(or $(RELEASE_DIR),dist)"

lock: venv ## Resolve the dependencies anew into requirements/*.txt (ARGS=--upgrade for newer versions).
	@sh scripts/lock $(ARGS)

docs: venv ## Write what is generated anew: pages of docs/, parts of the chart, the version where it is repeated.
	$(BIN)/python scripts/set_version.py
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/python scripts/generate_chart.py

chart: venv-dev ## Check the chart: lint, every value set, schemas of several versions of Kubernetes.
	$(BIN)/python scripts/generate_chart.py --check
	$(PYTEST) tests/chart $(ARGS)

clean: ## Remove .venv and every cache (no data: that lives in the data directory).
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find $(CODE) tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
