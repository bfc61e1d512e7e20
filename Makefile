# The same verbs everywhere: up demo test check bench docs. Each makes its own environment first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SUITE  ?= all

# Tests start hundreds of processes: what they run is compiled once, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up demo test test-e2e test-simulation compare-simulation soak test-postgres kubectl test-kubectl helm kubernetes test-kubernetes image test-installation test-torch test-torch-kubernetes test-det check format bench docs conformance clean

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Muster needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable . --group dev
	@touch $@

up: $(STAMP)            ## keep the platform running in this terminal
	$(BIN)/muster up

demo: $(STAMP)          ## start four nodes, train a model as a gang, show the result, leave nothing behind
	$(BIN)/python examples/demo.py

# What a new user does. The rest of the command line has a target of its own: it takes minutes.
NEW_USER := tests/e2e/test_readme.py tests/e2e/test_demo.py tests/e2e/test_cli_jobs.py

test: $(STAMP)          ## all parts, the first steps of a user, and the whole control plane under faults
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(NEW_USER) tests/conformance tests/integration \
	  tests/simulation tests/unit
	$(MAKE) test-simulation

test-e2e: $(STAMP)      ## the whole platform and its command line, as users run them
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m 'not kubectl' tests/e2e \
	  $(NEW_USER:%=--deselect=%)

SEEDS   ?= 200
WORKERS ?= $(shell nproc)
HOURS   ?= 1

test-simulation: $(STAMP) ## the whole control plane under faults: 200 seeds, SEEDS=n for others
	$(BIN)/muster sim run --seeds $(SEEDS) --workers $(WORKERS)

# OTHER: the `muster` of an environment with another Python.
compare-simulation: $(STAMP) ## make compare-simulation OTHER=path/to/muster SEEDS=30: the same runs, bit for bit
	@mkdir -p build
	$(BIN)/muster sim run --seeds $(SEEDS) --workers $(WORKERS) > build/simulated-here
	$(OTHER) sim run --seeds $(SEEDS) --workers $(WORKERS) | diff build/simulated-here -

soak: $(STAMP)          ## make soak HOURS=1, or DAYS=100 virtual ones; the result is appended to docs/reliability.md
	$(BIN)/python -m tests.simulation.soak $(if $(DAYS),--days $(DAYS),--hours $(HOURS)) --workers $(WORKERS)

test-postgres: $(STAMP) ## the tests about records over a real PostgreSQL, which it starts by itself (root: and installs)
	$(BIN)/python tools/postgres.py -- $(BIN)/python -m pytest -n 3 --dist loadfile -m postgres tests/unit tests/integration

# Newer than most that are installed: it sends protobuf. Pinned in tools/kubectl/go.mod; needs Go.
KUBECTL_VERSION = $(shell sed -n 's,.*k8s.io/kubectl v0,v1,p' tools/kubectl/go.mod | head -1)
STAMP_VERSION   = k8s.io/component-base/version

kubectl:                ## build that kubectl into build/bin
	@mkdir -p build/bin
	go build -C tools/kubectl -o "$(CURDIR)/build/bin/kubectl" \
	  -ldflags "-X $(STAMP_VERSION).gitVersion=$(KUBECTL_VERSION) -X $(STAMP_VERSION).gitMajor=1" .

test-kubectl: $(STAMP)  ## the kubectl tests with that kubectl
	KUBECTL="$(CURDIR)/build/bin/kubectl" $(BIN)/python -m pytest -m kubectl tests/e2e

helm:                   ## build Helm into build/bin, to check the chart with; pinned in tools/helm/go.mod, needs Go
	@mkdir -p build/bin
	nice go build -C tools/helm -o "$(CURDIR)/build/bin/helm" helm.sh/helm/v3/cmd/helm

kubernetes: $(STAMP)    ## build the control plane of test-kubernetes, into the user's cache; needs Go
	nice $(BIN)/python tools/kubernetes.py --build

# In a network of its own this machine has that address; and what nodes change is gone afterwards. Where that may be had.
ADDRESS  := 10.218.0.1
ISOLATED  = $(shell tools/isolated $(ADDRESS) true 2>/dev/null && echo tools/isolated $(ADDRESS))

# The same tests as on a platform of our own, each file on a control plane for itself: another store below them.
ON_CLUSTER := $(addprefix tests/e2e/test_,batch_job_run.py cli_batch.py cli_jobs.py cli_objects.py cli_quota.py \
  cli_terminal.py quota_queues.py vcctl_requests.py volcano_job_run.py volume_mounts.py \
  cli_decisions.py::test_the_log_of_a_real_platform_replays \
  cli_scheduler_config.py::test_a_plugin_of_another_distribution_is_used)

test-kubernetes: $(STAMP) ## on a real cluster: that of KUBECONFIG, else a control plane that it builds and starts by itself
	@tools/install-containerd
	$(if $(KUBECONFIG),,$(ISOLATED) $(BIN)/python tools/kubernetes.py --) $(BIN)/python -m pytest tests/kubernetes
	MUSTER_E2E_ON=kubernetes $(BIN)/python -m pytest -n 2 --dist loadfile $(ON_CLUSTER)

image:                  ## build deploy/Dockerfile into build/image.tar, without a registry; as root it installs Debian's buildah
	@mkdir -p build
	@tools/build-image build/image.tar

test-installation: $(STAMP) image ## the image as an installation on a real cluster, with containers and Services; as root
	@tools/install-containerd
	tools/isolated $(ADDRESS) $(BIN)/python tools/kubernetes.py --address $(ADDRESS) -- \
	  $(BIN)/python -m pytest tests/installation

# An interpreter that has PyTorch; Debian's package belongs to the system's own.
TORCH_PYTHON ?= /usr/bin/python3

test-torch: $(STAMP)    ## distributed training with a real PyTorch; as root it installs Debian's where there is none
	@$(TORCH_PYTHON) -c 'import torch' 2>/dev/null || tools/install-torch
	TORCH_PYTHON="$(TORCH_PYTHON)" $(BIN)/python -m pytest -n 2 --dist loadfile tests/e2e/test_torch_ddp.py \
	  tests/e2e/test_torch_elastic.py

test-torch-kubernetes: export MUSTER_E2E_ON = kubernetes
test-torch-kubernetes: test-torch ## the same on control planes that it starts by itself

# Determined's own client, and what its tasks run. Pinned, and never in the environment that is tested; PyTorch comes from
# the interpreter that the environment is made with.
DET_VENV  := build/det-venv
DET_STAMP := $(DET_VENV)/.installed

$(DET_STAMP): tests/det/requirements.txt | $(STAMP)
	@$(TORCH_PYTHON) -c 'import torch' 2>/dev/null || tools/install-torch
	@echo "installing into $(DET_VENV) ..."
	@$(BIN)/uv venv --quiet --clear --system-site-packages --python $(TORCH_PYTHON) $(DET_VENV)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(DET_VENV)/bin/python --requirement tests/det/requirements.txt
	@touch $@

test-det: $(STAMP) $(DET_STAMP)  ## the real `det` and its harness with PyTorch; as root it installs Debian's sshd and PyTorch
	@tools/install-sshd
	@tools/install-azurite
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/det

check: $(STAMP)         ## formatting, lint, types, import contracts, rendered docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)         ## make bench [SUITE=name]: prints a table, writes build/bench/name.json
	$(BIN)/python -m bench $(SUITE)

docs: $(STAMP)          ## render what is generated from the code; `make check` fails when it is stale
	$(BIN)/python -m muster.cli.reference > docs/reference/cli.md
	$(BIN)/python -m muster.experiments.states_page > docs/reference/states.md
	$(BIN)/python -m muster.deploying.generating deploy

conformance: $(STAMP)   ## other systems' own test tables over our engines; writes build/conformance.json
	$(BIN)/python -m tests.conformance

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
