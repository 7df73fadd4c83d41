# Everything a developer runs. The first run makes .venv and takes minutes; later runs start at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install demo console fresh-demo kafka check test test-install test-crash test-sim test-kafka format bench bench-peers peers docs install-browser clean distclean

help:
	@echo "make demo                         the bank sample end to end, on the data set in seeds/"
	@echo "make demo TRANSACTIONS=FILE.csv   the same with your own transactions"
	@echo "make demo REPLICAS=3              the same on three brokers, and the leader is killed"
	@echo "make demo SECURE=1                the same with TLS, a login and least permissions"
	@echo "make demo BROKER=kafka            the same on a real Kafka, whose jars it fetches once (45 MB)"
	@echo "make console                      the same, and then a web console while commands go on"
	@echo "make fresh-demo                   the same, forgetting what earlier demos stored"
	@echo "make check                        lint, types, contracts and the quick unit tests, while you work"
	@echo "make test                         every check and every test, and which tests were slowest"
	@echo "make test-install                 installations for every Python from 3.11 on: checkout, wheel, each extra"
	@echo "make test-crash COUNT=300         the store's crash tests for long: power cuts, kills, flips, figures"
	@echo "make test-sim SEEDS=5000 FROM=0   simulated deployments under faults, one per seed"
	@echo "make kafka BROKERS=1 PORT=9092    a real Kafka on this machine until Ctrl-C; fetches its jars once (45 MB)"
	@echo "make test-kafka                   the transport's promises over one and three real Kafka brokers"
	@echo "make install-browser              chromium and playwright, for the tests of the console in a browser (as root)"
	@echo "make docs                         the documentation as a site, in var/site/html"
	@echo "make format                       format and mend what can be mended by itself"
	@echo "make bench                        messages, commands and projected events per second, beside bare drivers and the bare disk"
	@echo "make bench MINUTES=60             the same, with an hour of half load at its end instead of three minutes"
	@echo "make bench-peers                  the same work by other queues and frameworks: pages in docs/benchmarks/"
	@echo "make clean                        remove demo data, caches and builds"
	@echo "make distclean                    remove .venv as well"
	@echo
	@echo "PYTHON=python3.12 chooses the interpreter that .venv is made with (3.11 or newer)."

install: $(INSTALLED)

# hatchling is installed first and used without isolation, so that the build backend is pinned too.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Headrace needs Python 3.11 or newer; '$(PYTHON)' is not one." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing into $(VENV): once, some minutes, about 1.2 GB of disk (Spark is most of it)."
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt hatchling editables setuptools wheel
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/headrace demo $(if $(TRANSACTIONS),--transactions '$(TRANSACTIONS)') $(if $(filter kafka,$(BROKER)),--kafka) $(if $(SECURE),--secure) $(if $(REPLICAS),$(if $(filter 3,$(REPLICAS)),--replicas,$(error REPLICAS is 3: the demo runs three brokers)))

console: $(INSTALLED)
	@$(BIN)/headrace demo --console

fresh-demo: $(INSTALLED)
	@$(BIN)/headrace demo --fresh $(if $(TRANSACTIONS),--transactions '$(TRANSACTIONS)') $(if $(filter kafka,$(BROKER)),--kafka) $(if $(SECURE),--secure) $(if $(REPLICAS),$(if $(filter 3,$(REPLICAS)),--replicas,$(error REPLICAS is 3: the demo runs three brokers)))

# Processes that share the files of tests between them: two more than 2 cores have, because many
# tests wait for a disk, a JVM or a broker. Each holds a PostgreSQL, one of them Spark.
WORKERS ?= 4

# Without PYTHONSAFEPATH `python -m` puts this folder on the path, and tests would import what no user can.
check test: export PYTHONSAFEPATH = 1

# mypy has one core. Meanwhile another compiles the tests of a new checkout, which each of the workers would do.
define static-checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; test -e tests/__pycache__ || $(BIN)/python -m pytest --collect-only --quiet >/dev/null; wait $$types
	$(BIN)/lint-imports
endef

# tests/conftest.py says what is quick.
check: $(INSTALLED)
	$(static-checks)
	$(BIN)/python -m pytest --quick --numprocesses $(WORKERS) --dist loadfile tests/unit

test: $(INSTALLED)
	$(static-checks)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --durations 25

# Needs the package index and some ten minutes for each Python that this machine has.
test-install:
	$(PYTHON) tests/install/matrix.py

COUNT ?= 300

# As root it also cuts the power of a real file system; docs/engineering/testing.md tells what it prints.
test-crash: export PYTHONSAFEPATH = 1
test-crash: $(INSTALLED)
	$(BIN)/python -m pytest tests/crash/store --count $(COUNT) -n auto

SEEDS ?= 1000
FROM ?= 0

test-sim: export PYTHONSAFEPATH = 1
test-sim: $(INSTALLED)
	$(BIN)/python -m pytest tests/simulation --seeds $(SEEDS) --from $(FROM)

BROKERS ?= 1
PORT ?= 9092

# Needs Java 17, as Spark does, and Maven's central repository once; samples/kafka.py says what else.
kafka: $(INSTALLED)
	@$(BIN)/python -m samples.kafka run --brokers $(BROKERS) --port $(PORT)

test-kafka: $(INSTALLED)
	@$(BIN)/python -m samples.kafka jars
	PYTHONSAFEPATH=1 $(BIN)/python -m pytest tests/kafka

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# mkdocs.yml says what is in it; SITE=zensical builds the same with another builder.
SITE ?= mkdocs

docs: $(INSTALLED)
	$(BIN)/python docs/site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/$(SITE) build --strict
	@echo "open var/site/html/index.html"

# An hour of half load by `make bench MINUTES=60`.
MINUTES ?= 3

bench: $(INSTALLED)
	@$(BIN)/python -m benchmarks.mq
	@$(BIN)/python -m benchmarks.commands
	@$(BIN)/python -m benchmarks.projections live lag rebuild
	@$(BIN)/python -m benchmarks.spark source plain rebuild
	@$(BIN)/python -m benchmarks.plain
	@$(BIN)/python -m benchmarks.event_store
	@$(BIN)/python -m benchmarks.store_append
	@$(BIN)/python -m benchmarks.store_read
	@$(BIN)/python -m benchmarks.store_compaction
	@$(BIN)/python -m benchmarks.message_path
	@$(BIN)/python -m benchmarks.command_path
	@$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

# Tests of the console in a browser need them; they are skipped without.
install-browser: $(INSTALLED)
	apt-get install --yes --quiet chromium
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[browser]'

PEERS := var/peers/.installed

# What others make and `make bench-peers` measures: their client libraries, and their servers in var/peers.
peers: $(PEERS)

$(PEERS): $(INSTALLED) benchmarks/peers/install.sh pyproject.toml
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[peers]'
	$(PIP) install --quiet --no-deps message-db-py==0.3.5  # it asks for psycopg2 to be compiled
	benchmarks/peers/install.sh
	@touch $@

# What each writes into docs/benchmarks/ is there also where a later one fails; the rest goes on.
# One more is a module that takes --page, named here.
PAGES := peers commands.beside growth rebuilds

bench-peers: $(INSTALLED) $(PEERS)
	@failed=; for page in $(PAGES); do \
	    $(BIN)/python -m benchmarks.$$page --page docs/benchmarks || failed="$$failed $$page"; \
	done; \
	$(BIN)/python -m benchmarks.spark plain rebuild peer --cores 2 || failed="$$failed spark"; \
	test -z "$$failed" || { echo "These failed:$$failed" >&2; exit 1; }

clean:
	rm -rf var dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
