# What contributors run; "make help" lists it. Everything is plain Go tooling.
# cgo stays off: no C compiler is needed. For a dynamod without glibc add -tags nodl.
export CGO_ENABLED = 0
TIMEOUT  ?= 15m
FUZZTIME ?= 30s
EXPLORE  ?= 5m
TOP      ?= 1m
SOAK     ?= 10m
TICKETS  ?= 1000000
MUTATE   ?= internal/worker,internal/worker/kv,internal/worker/prefill,internal/worker/decode,internal/nixl,internal/engine,internal/frontend,internal/controller,internal/agent
BENCH    ?= .
GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# The race detector costs a factor of ten: it runs where goroutines share memory.
RACE     ?= $(shell scripts/concurrent-packages.sh)
# One package more at a time than there are processors: tests also wait.
PARALLEL ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Packages run in this order: the long ones first, so that none is left alone at the end.
LONG     = ./internal/clustertest ./internal/worker ./internal/engine/cpu ./internal/cli ./internal/engine/gpu ./internal/cuda/kernels ./internal/lab/bench ./internal/requestplane ./internal/store ./internal/planner/live
# Where tests and CI look for the kube-apiserver of "make kube-apiserver".
KUBE_APISERVER ?= $(or $(DYNCTL_KUBE_APISERVER),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/dynctl-ci/kube-apiserver)
# The same for the simulator of "make inference-sim".
INFERENCE_SIM ?= $(or $(DYNCTL_INFERENCE_SIM),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/dynctl-ci/inference-sim)
# Symbols for debuggers would be most of the time that test programs take to link.
LINK     = -ldflags='-s -w'

.DEFAULT_GOAL := help
.PHONY: up down build install test test-arm64 two-hosts race test-kubernetes kube-apiserver inference-sim lint lint-kubernetes tools bench bench-cpu bench-scale bench-top gobench fuzz emulate explore tickets mutate soak attack golden docs help

up: build ## start a local cluster: 2 prefill and 4 decode workers
	bin/dynctl up --prefill 2 --decode 4

down: build ## stop the local cluster
	bin/dynctl down

build: ## build bin/dynctl, bin/dynamod and bin/dynlab
	go build -trimpath -o bin/ ./cmd/...

install: ## put dynctl, dynamod and dynlab where go install does (GOBIN, else ~/go/bin)
	go install -trimpath ./cmd/...

test: ## run all tests
	go test $(LINK) -p $(PARALLEL) -timeout $(TIMEOUT) $(LONG) ./...

test-arm64: ## test the CPU kernels for arm64, under qemu-user on other machines
	scripts/test-arm64.sh

two-hosts: ## two dynamods on two hosts, which are network namespaces, over bad networks; needs root
	DYNCTL_TWO_HOSTS=1 go test -count=1 -timeout 0 -v -run '^TestTwoHosts$$' ./internal/clustertest

# A process under the race detector would sleep for a second at its end, and so would each that a test starts.
race: ## run the short tests of packages with concurrency under the race detector
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=20 go test -race $(LINK) -short -p $(PARALLEL) -timeout 15m $(filter $(RACE),$(LONG)) $(filter-out $(LONG),$(RACE))
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=20 go test -race $(LINK) -short -p $(PARALLEL) -run 'Concurrent|AtOnce' $(filter-out ./internal/cli,$(shell scripts/concurrent-packages.sh --used))
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=20 go test -race $(LINK) -short -run '^Test(Chat|Doctor|Drain|Events|Explain|Logs|Top)|AtOnce' ./internal/cli # the commands with goroutines of their own

test-kubernetes: kube-apiserver ## test discovery by Kubernetes against a real kube-apiserver, with the programs (2 minutes)
	DYNCTL_KUBE_APISERVER=$(KUBE_APISERVER) go test -tags kubernetes -count=1 -timeout $(TIMEOUT) ./internal/dial
	DYNCTL_KUBE_APISERVER=$(KUBE_APISERVER) go test -count=1 -timeout $(TIMEOUT) -v -run 'Kubernetes|Manifests|Settings|APIServer' ./internal/store ./internal/planner/live ./internal/lab/chart ./internal/clustertest

kube-apiserver: ## build the kube-apiserver for tests (7 minutes the first time, then 15 seconds)
	internal/lab/kubeapiserver/build.sh $(KUBE_APISERVER)

inference-sim: ## build the simulator of vLLM servers for tests (2 minutes the first time)
	internal/lab/inferencesim/build.sh $(INFERENCE_SIM)

lint: ## golangci-lint, with vet, staticcheck and more: see .golangci.yml
	go run $(GOLANGCI) run

lint-kubernetes: ## the same for what the tag kubernetes adds
	go run $(GOLANGCI) run --build-tags kubernetes ./internal/dial ./internal/kube/access

tools: ## bring what "make lint" runs
	go run $(GOLANGCI) version

bench: ## measure this build on this machine, into docs/benchmarks.md
	go build -buildvcs=auto -trimpath -o bin/ ./cmd/dynlab
	bin/dynlab bench all --write docs/benchmarks.md

bench-cpu: ## measure the CPU engine in real shapes, into docs/benchmarks-cpu.md (20 minutes)
	go build -buildvcs=auto -trimpath -o bin/ ./cmd/dynlab
	bin/dynlab bench cpu --write docs/benchmarks-cpu.md

bench-scale: ## measure fleets of 2 to 1,000 workers, into docs/scale (25 minutes)
	go build -buildvcs=auto -trimpath -o bin/ ./cmd/dynlab
	bin/dynlab scale --write docs/scale

bench-top: ## measure dynctl top with 1,000 simulated workers, into docs/benchmarks-top.md (9 minutes)
	DYNCTL_BENCH_TOP=$(TOP) DYNCTL_BENCH_TOP_OUT=$(CURDIR)/docs/benchmarks-top.md go test -count=1 -timeout 0 -v -run '^TestTop$$' ./internal/clustertest

gobench: ## run the Go benchmarks of packages; BENCH=pattern chooses some
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

fuzz: ## run every fuzz target for FUZZTIME (30s), and the oracles with fresh seeds
	scripts/fuzz.sh $(FUZZTIME)

emulate: ## execute the PTX of all GPU kernels in shapes of real models, in several orders of warps (10 minutes)
	DYNCTL_EMULATE=1 go test -count=1 -timeout 0 -v -run '^TestEmulatedCases$$' ./internal/cuda/kernels

explore: ## try fresh orders of faults between workers for EXPLORE (5m)
	DYNCTL_EXPLORE=$(EXPLORE) go test -count=1 -timeout 0 -v -run '^TestExplore$$' ./internal/worker

tickets: ## try TICKETS (1000000) adversarial tickets over every transport of NIXL
	DYNCTL_TICKETS=$(TICKETS) go test -count=1 -timeout 0 -v -run '^TestBehavior/adversarial' ./internal/nixl/...

mutate: ## mutate random lines of MUTATE, packages separated by commas, and tell what no test notices
	go run ./internal/lab/mutate -packages $(MUTATE)

soak: ## kill processes at every step, then random faults for SOAK (10m); what is left over is an error
	DYNCTL_SOAK=$(SOAK) go test -count=1 -timeout 0 -v -run 'TestKillAtFailpoints|TestSoak' ./internal/clustertest

attack: build ## attack a cluster of processes while clients are measured, into docs/reliability.md (12 minutes)
	go run ./internal/lab/attack -write docs/reliability.md

golden: ## write the golden files of tests anew; review the difference
	go test $$(scripts/golden-packages.sh) -update

docs: ## write generated files anew: example configuration, reference, man pages
	go generate ./...

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
