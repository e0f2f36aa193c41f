# Every command a person or CI runs on this repository; `make help` lists them. Each target that needs an environment makes
# it first: .venv (the package and its test tools), and for the interop suite only .venv-spark (pyspark and the Hudi bundles)
# and .kafka (the jars of a Kafka broker).
# A stamp file per environment says that it was installed for the present pyproject.toml.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SPARK_VENV := .venv-spark
PYSPARK := pyspark==3.5.8
HUDI_BUNDLE := org.apache.hudi:hudi-spark3.5-bundle_2.12
HUDI_VERSIONS := 1.2.0 1.0.2 0.15.0
HUDI_JARS := $(HUDI_VERSIONS:%=$(SPARK_VENV)/jars/hudi-spark3.5-bundle_2.12-%.jar)
DUCKLAKE_VENV := .venv-ducklake
DUCKLAKE := duckdb==1.5.5 duckdb-extension-ducklake==1.5.5 pyarrow
QUACK_VENV := .venv-quack
KAFKA := .kafka
VERSITYGW := .versitygw
VERSITYGW_VERSION := v1.8.0
GO ?= $(or $(shell command -v go),/usr/local/go/bin/go)
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest

# What `make test` runs: everything without a JVM; with LAKESQL_SPARK=required the slow tests, Spark and the broker too.
LAKESQL_SPARK ?=
# Where the tests of `make test-s3` keep their tables: moto, or versitygw after `make versitygw`.
STORE ?= moto
FAST := not spark and not kafka and not slow and not bench and not store

.PHONY: help venv spark kafka demo test test-fast test-interop interop-matrix test-golden test-crash test-docs test-s3 versitygw check format bench bench-small bench-check ducklake quack test-quack regold wheel-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9 -]*:.*## / { n = split($$1, names, " "); for (i = 1; i <= n; i++) printf "  make %-14s %s\n", names[i], $$2 }' $(MAKEFILE_LIST)

venv: $(VENV)/.test ## make .venv with the package (editable) and its test tools

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "lakesql needs Python 3.11 or newer, $(PYTHON) is older: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "$(PYTHON) -m venv failed; on Debian install python3-venv" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/.%: pyproject.toml | $(BIN)/python
	@echo "installing lakesql[$*] into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) --editable '.[$*]'
	@touch $@

spark: $(SPARK_VENV)/.installed $(HUDI_JARS) ## make .venv-spark: pyspark, the package and the three Hudi bundles (needs Java 17 and Maven)

$(SPARK_VENV)/.installed: Makefile pyproject.toml
	@command -v java > /dev/null || { echo "the Spark suite needs Java 17 (apt-get install openjdk-17-jre-headless)" >&2; exit 1; }
	@echo "installing $(PYSPARK) into $(SPARK_VENV)"
	@test -x $(SPARK_VENV)/bin/python || $(PYTHON) -m venv $(SPARK_VENV)
	@$(SPARK_VENV)/bin/python $(PIP_INSTALL) --editable '.[spark]' '$(PYSPARK)'
	@touch $@

$(SPARK_VENV)/jars/hudi-spark3.5-bundle_2.12-%.jar: | $(SPARK_VENV)/.installed
	@command -v mvn > /dev/null || { echo "the Spark suite needs Maven (apt-get install maven)" >&2; exit 1; }
	@echo "fetching Hudi $* for Spark 3.5"
	@mvn -q -B -Dstyle.color=never dependency:get -Dtransitive=false -Dartifact=$(HUDI_BUNDLE):$*
	@mvn -q -B -Dstyle.color=never dependency:copy -Dartifact=$(HUDI_BUNDLE):$* -DoutputDirectory=$(CURDIR)/$(@D) -Dmdep.useBaseVersion=true
	@touch $@

kafka: $(KAFKA)/.installed ## fetch the jars of the Kafka broker that tests start (needs Java 17 and Maven)

$(KAFKA)/.installed: tests/kafka/pom.xml
	@command -v java > /dev/null || { echo "the Kafka broker needs Java 17 (apt-get install openjdk-17-jre-headless)" >&2; exit 1; }
	@command -v mvn > /dev/null || { echo "the Kafka broker needs Maven (apt-get install maven)" >&2; exit 1; }
	@echo "fetching Apache Kafka into $(KAFKA)"
	@rm -rf $(KAFKA)/lib
	@mvn -q -B -Dstyle.color=never -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(KAFKA)/lib
	@touch $@

demo: $(VENV)/.demo ## merge, ingest, compact, advise and plot sample tables end to end; checks what it shows
	@$(BIN)/lakesql demo

.PHONY: docs
docs: $(VENV)/.docs ## build the documents as a site into site/; a broken link ends it
	@$(BIN)/python -m sphinx -q -b html -W --keep-going -d $(VENV)/.doctrees docs site
	@echo "site/index.html"

ifeq ($(LAKESQL_SPARK),required)
test: $(VENV)/.test spark kafka quack ## all tests without a JVM, under 10 minutes; LAKESQL_SPARK=required adds slow tests, Spark, Kafka, Quack
	LAKESQL_QUACK=required $(PYTEST) -q -n auto -m "not spark and not kafka and not bench and not store"
	LAKESQL_SPARK=required LAKESQL_KAFKA=required $(PYTEST) -n 2 --dist loadgroup -m "spark or kafka" tests/interop tests/crash
else
test: $(VENV)/.test
	$(PYTEST) -q -n auto -m "$(FAST)"
endif

test-fast: $(VENV)/.test ## unit tests only, under a minute
	$(PYTEST) -q -n auto -m "$(FAST)" tests/unit

test-interop: $(VENV)/.test spark kafka ## Apache Hudi on Spark and hudi-rs as reader and writer of our tables, a real Kafka broker
	LAKESQL_SPARK=required LAKESQL_KAFKA=required $(PYTEST) tests/interop

interop-matrix: $(VENV)/.test spark kafka ## run the interop tests, keep date, versions and outcomes, and write docs/interop.md by them
	LAKESQL_INTEROP_RESULTS=1 LAKESQL_SPARK=required LAKESQL_KAFKA=required $(PYTEST) tests/interop
	$(PYTEST) -q tests/docs/test_interop_matrix.py --regold

test-golden test-crash test-docs: test-%: $(VENV)/.test ## one folder of tests, slow ones included
	$(PYTEST) -q -n auto -m "not spark and not store" tests/$*

test-s3: $(VENV)/.test ## the golden, property and crash tests on an S3 server, faults at its requests; STORE=versitygw for a real one
	LAKESQL_TEST_STORE=$(STORE) $(PYTEST) -q -n auto -m "not spark and not kafka and not bench" tests/golden tests/property tests/crash tests/s3

versitygw: $(VERSITYGW)/versitygw ## compile the S3 server that tests and benchmarks use (needs Go); minutes

$(VERSITYGW)/versitygw:
	@command -v $(GO) > /dev/null || { echo "versitygw needs Go 1.24 or newer" >&2; exit 1; }
	@echo "compiling versitygw $(VERSITYGW_VERSION)"
	@GOBIN=$(CURDIR)/$(VERSITYGW) $(GO) install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)

check: $(VENV)/.test ## lint, types, layers and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q -n auto -m "$(FAST)" tests/unit

format: $(VENV)/.test ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.test $(VENV)/.bench ducklake ## measure against all peers; benchmarks/report.md and .svg; BENCH="--runs 3 --no-spark" are options
	$(BIN)/python -m benchmarks.run $(BENCH)

bench-small: $(VENV)/.test $(VENV)/.bench ducklake ## the same, small, into benchmarks/report/
	$(BIN)/python -m benchmarks.run --small --no-spark $(BENCH)

bench-check: $(VENV)/.test ## fail when a ratio doubled against benchmarks/baseline.json; under a minute
	$(PYTEST) -q -m bench tests/bench

ducklake: $(DUCKLAKE_VENV)/.installed ## make .venv-ducklake: the DuckDB that has the extension ducklake, a peer of the benchmarks

$(DUCKLAKE_VENV)/.installed: Makefile
	@echo "installing $(DUCKLAKE) into $(DUCKLAKE_VENV)"
	@test -x $(DUCKLAKE_VENV)/bin/python || $(PYTHON) -m venv $(DUCKLAKE_VENV)
	@$(DUCKLAKE_VENV)/bin/python $(PIP_INSTALL) $(DUCKLAKE) || echo "not to be had here: the benchmarks run without DuckLake" >&2
	@touch $@

quack: $(QUACK_VENV)/.installed ## make .venv-quack: the DuckDB that has the extension quack, and its shell, for the tests of lakesql serve

$(QUACK_VENV)/.installed: pyproject.toml
	@echo "installing lakesql[serve] into $(QUACK_VENV)"
	@test -x $(QUACK_VENV)/bin/python || $(PYTHON) -m venv $(QUACK_VENV)
	@$(QUACK_VENV)/bin/python $(PIP_INSTALL) --editable '.[serve]' duckdb-cli==1.5.5
	@touch $@

test-quack: $(VENV)/.test quack ## stock DuckDB shells at a lakesql serve
	LAKESQL_QUACK=required $(PYTEST) -q tests/quack

regold: $(VENV)/.test ## write the golden files anew; review the diff
	$(PYTEST) -q tests/unit/test_merge_into.py tests/unit/test_refused.py tests/docs/test_procedures.py tests/docs/test_ingest_settings.py tests/docs/test_ingest_conformance.py tests/docs/test_plots.py tests/docs/test_reference.py tests/docs/test_sql_scripts.py tests/docs/test_interop_matrix.py --regold

wheel-check: $(VENV)/.test ## build the wheel, install it on every Python at hand and with each extra, use it, measure it; some minutes
	@$(BIN)/python tests/packaging/check_wheel.py $(WHEEL)

clean: ## remove the environments and all caches
	rm -rf $(VENV) $(SPARK_VENV) $(DUCKLAKE_VENV) $(QUACK_VENV) $(KAFKA) $(VERSITYGW) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
