# Every target that needs Python packages creates .venv first; nothing but Python 3.11 and a package registry is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIVE := $(VENV)/.live
RAY := $(VENV)/.ray
NEWEST := $(VENV)/newest/.installed

# What pip would do file by file, on all cores, but for packages' own tests, a quarter of it all; a package may hold files
# that are not for this Python.
COMPILE := @$(BIN)/python -W ignore -m compileall -qq -j 0 -x '/tests/'

# $(call install,PYTHON,WHAT): uv takes a third of pip's time. It reads none of pip's settings but for the registry told to it here; where it cannot be
# had, or cannot do it, pip does.
define install
@index=$$($(BIN)/python -m pip config get global.index-url 2> /dev/null || $(BIN)/python -m pip config get :env:.index-url 2> /dev/null); \
	UV_SYSTEM_CERTS=1 $(BIN)/uv pip install --quiet $${index:+--default-index "$$index"} --python $(1) $(2) 2> /dev/null \
	|| $(BIN)/python -m pip --python $(1) install --quiet --disable-pip-version-check --no-compile $(2)
endef

# Tests start hundreds of processes: each would compile our sources anew where somebody has set this.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo demo-live demo-share demo-serve test test-slow test-long test-live test-ray test-crash check format bench bench-planner bench-forecast bench-online bench-cluster reproduce clean

help:
	@echo "make demo    set up, then run two tenants on a simulated A100 and say what was won over the best fixed layout"
	@echo "make demo-live    set up torch as well (6 GB), then serve and retrain real models on shares of this CPU: five minutes"
	@echo "                  STATE=DIR: beside another controller of this user's, with a state of its own"
	@echo "make demo-share   the same with two models that take turns in shared instances, then the same requests simulated: five minutes"
	@echo "make demo-serve   serve two models before clients: a burst, a tenant that comes and learns, a stop, a second start: five minutes"
	@echo "make test    set up, then run the tests but for the slow ones: six minutes"
	@echo "make test-slow    the tests that take more than half a second each: five minutes; CI runs them, too"
	@echo "make test-long    more seeds and examples of what make test has, what takes the oracles long, and a few long tests: a quarter of an hour"
	@echo "make test-live    set up torch and Avalanche as well (6 GB), then run the tests that need them"
	@echo "make test-ray    set up Ray as well (240 MB), then begin two nodes, and kill what can be killed: five minutes"
	@echo "make test-crash       kill runs 200 times at random moments, take them up again; end 100 by signals: minutes"
	@echo "make check   ruff, formatting, mypy, import contracts, who opens files; limits of code, links and commands of the documentation"
	@echo "make format  let ruff rewrite what it can"
	@echo "make bench   print the speed figures"
	@echo "make bench-planner    print the planner's: a quarter of an hour; ARGS=--slow adds general solvers, ARGS=--run: what a run is charged"
	@echo "make bench-online     simulate runs planned once and anew, with every forecaster: an hour; ARGS='w1 w8 --every 5': less"
	@echo "make bench-cluster    which tenant on which GPU: against a dynamic program, bound and rivals, planned and simulated; hours; ARGS='gaps large': less"
	@echo "make bench-forecast   what forecasters are worth on last thirds of traces; TRACES='FILE …': on these, too,"
	@echo "                      ARGS='--model DIR': with a fitted network"
	@echo "make reproduce        simulate the paper's evaluation anew, minutes, and write docs/results.md; FULL=1: all of it,"
	@echo "                      TRACES=FILE: with per-second counts of the Twitter stream; SECTIONS='main load': some of it"
	@echo "make clean   remove the virtual environment, caches and runs"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "migrator needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "setting up $(VENV), once: a minute or less"
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv || true
	$(call install,$(BIN)/python,-c constraints.txt -e ".[dev]")
	$(COMPILE) $(VENV)/lib || true
	@touch $@

# Of the paper's sixteen workloads at load 0.7, W16 has the median gain over the best fixed layout (docs/results.md: of
# the two in the middle, the one whose service profiles were all measured).
demo: $(STAMP)
	@echo "W16 of the MIGRator paper at load 0.7: of its sixteen workloads the one with the median gain (docs/start.md)"
	@run=runs/w16; n=1; while [ -e $$run ]; do n=$$((n + 1)); run=runs/w16-$$n; done; \
		$(BIN)/migrator run configs/w16.yaml --windows 4 --against static --out $$run --html $$run/run.html

# What `pip install` brings today, with the extra `nvml`, for one test; where the registry does not answer soon, that is left out and told.
$(NEWEST): private export PIP_TIMEOUT := 15
$(NEWEST): private export PIP_RETRIES := 1
$(NEWEST): private export UV_HTTP_TIMEOUT := 15
$(NEWEST): private export UV_HTTP_RETRIES := 1
$(NEWEST): pyproject.toml | $(STAMP)
	@echo "installing the newest versions of our dependencies into $(VENV)/newest, once: a minute or less"
	@$(BIN)/python -m venv --clear --without-pip $(VENV)/newest
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*p["dependencies"], *p["optional-dependencies"]["nvml"], sep="\n")' \
		> $(VENV)/newest/requirements.txt
	$(call install,$(VENV)/newest/bin/python,-r $(VENV)/newest/requirements.txt) && touch $@ || echo "the registry did not answer; going on without"
	$(COMPILE) $(VENV)/newest/lib || true

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=20 --durations-min=0.5 $(ARGS)

test-slow: $(STAMP) $(NEWEST)
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=20 -m 'slow and not live and not long' $(ARGS)

test-long: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'long or hypothesis'

# The registry's ordinary builds: those of torch and torchvision for the CPU alone do not go together.
# A variable, as a comma would end the argument of a call.
WITH_LIVE := -c constraints.txt -e ".[live,avalanche,triton]"
$(LIVE): $(STAMP)
	@echo "installing torch, Avalanche and a client of Triton's into $(VENV), once: 6 GB on disk, one to five minutes on a fast line"
	$(call install,$(BIN)/python,$(WITH_LIVE))
	$(COMPILE) $(VENV)/lib || true
	@touch $@

# What stands on the CPU is known by the user's own state folder; STATE=DIR is another one, where somebody has that.
OWN = $(if $(STATE),--state $(STATE))

# Service profiles are of the machine at hand: measured anew each time, in half a minute.
demo-live: $(LIVE)
	@mkdir -p runs
	@rm -f runs/live-cpu-profiles.csv
	@$(BIN)/migrator profile cnn_wide --gpu cpu-1.6-in-7 --coarse --out runs/live-cpu-profiles.csv $(OWN)
	@$(BIN)/migrator run configs/live-cpu.yaml --set profiles=$(CURDIR)/runs/live-cpu-profiles.csv $(OWN)

# Ends with two pairs on the same requests: the live run and its simulation; and, simulated, these pools and none.
SIMULATED = $(BIN)/migrator compare configs/share-cpu.yaml --policies migrator --set gpu.backend=sim \
	--set profiles=$(CURDIR)/runs/share-cpu-profiles.csv
demo-share: $(LIVE)
	@mkdir -p runs
	@rm -f runs/share-cpu-profiles.csv
	@$(BIN)/migrator profile cnn_wide --gpu cpu-1.6-in-7 --coarse --out runs/share-cpu-profiles.csv $(OWN)
	@run=runs/share-cpu; n=1; while [ -e $$run ]; do n=$$((n + 1)); run=runs/share-cpu-$$n; done; \
		$(BIN)/migrator run configs/share-cpu.yaml --set profiles=$(CURDIR)/runs/share-cpu-profiles.csv --out $$run $(OWN) \
		&& $(BIN)/migrator verify $$run && $(BIN)/migrator fidelity $$run
	@echo; echo "The same requests, simulated with the accuracies of the config, in its pools:"
	@$(SIMULATED)
	@echo; echo "The same, simulated with an instance of its own for each tenant (sharing.pools: off):"
	@$(SIMULATED) --set sharing.pools=off

# All files are those that docs/serve.md shows.
demo-serve: $(LIVE)
	@folder=runs/serve; n=1; while [ -e $$folder ]; do n=$$((n + 1)); folder=runs/serve-$$n; done; \
		sh deploy/demo-serve.sh $(CURDIR)/docs/serve.md $$folder $(CURDIR)/$(BIN) $(if $(STATE),--state $(abspath $(STATE)))

# Live runs mostly wait, each with 0.7 cores at most: three go side by side, and tests are dealt out one by one, the longest first.
test-live: $(LIVE)
	$(BIN)/python -c 'import torch'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --maxschedchunk 1 -m 'live and not alone and not long'
	$(BIN)/python -m pytest -m 'live and alone' tests/migrator/execution/live

$(RAY): $(STAMP)
	$(call install,$(BIN)/python,-c constraints.txt -e ".[ray]")
	@touch $@

test-ray: $(RAY)
	$(BIN)/python -m pytest -m ray tests/migrator/cluster/test_ray.py

test-crash: $(STAMP)
	$(BIN)/python -m tests.crash --kills 200
	$(BIN)/python -m tests.crash.endings --n 100

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases benchmarks
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.doors
	$(BIN)/python -m tests.prose
	$(BIN)/python -m benchmarks.house check

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.speed.cli
	$(BIN)/python -m benchmarks.speed.serving
	$(BIN)/python -m benchmarks.speed.cpu_shares
	$(BIN)/python -m benchmarks.speed.dispatcher
	$(BIN)/python -m benchmarks.speed.front_door

bench-planner: $(STAMP)
	$(BIN)/python -m benchmarks.speed.planner $(ARGS)

bench-online: $(STAMP)
	$(BIN)/python -m benchmarks.online $(if $(TRACES),--traces $(TRACES)) $(ARGS)

bench-cluster: $(STAMP)
	$(BIN)/python -m benchmarks.cluster $(ARGS)

bench-forecast: $(STAMP)
	$(BIN)/python -m benchmarks.forecast $(ARGS) $(TRACES)

reproduce: $(STAMP)
	FULL=$(FULL) TRACES=$(TRACES) SECTIONS="$(SECTIONS)" $(BIN)/python -m benchmarks.paper.reproduce

clean:
	rm -rf $(VENV) build dist runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
