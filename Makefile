# Lockstep. `make` prints this table.
GO      ?= go
TAGS    := -tags invariants
BIN     := bin
PROTOC  ?= protoc
D       ?= 60s
SOAK    ?= 30m
T       ?= FuzzBatch
P       ?= ./...
COMMIT  := $(shell git describe --always --dirty 2>/dev/null)
LDFLAGS := -X main.commit=$(COMMIT)

.DEFAULT_GOAL := help
.PHONY: help build check test race golden fuzz fuzz-smoke fuzz-all sim sim-coverage bench generate generate-plugin size demo demo-control e2e e2e-race test-giouring pause kill-source kill-control kafka ack perf perf-peers perf-engines perf-ack bench-compare scale connections soak malformed swap-suite plugin-p99 plugin-rounds planted crash linux-test man ci lint clean

help: ## print this table
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/lockstep, bin/kafka-cluster-mirrors, bin/lockstep-perf, and the policies of plugins/examples
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...
	cd plugins/examples && CGO_ENABLED=0 $(GO) build -o ../../$(BIN)/examples/ ./...

check: lint ## gofmt, vet, staticcheck, house lint, freshness of generated code, unit tests (about a minute)
	$(GO) test $(TAGS) -short ./...

lint: ## gofmt, vet, staticcheck, house lint, freshness of generated code
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "gofmt would change these"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags giouring ./ioring
	cd plugins/examples && $(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/lint/ ./internal/msg/gen/

test: ## all tests, with invariants (under 10 minutes on 2 cores)
	$(GO) test $(TAGS) -timeout 590s ./...
	cd plugins/examples && $(GO) test ./...

race: ## all tests under the race detector, at a smaller size
	$(GO) test -race -short -timeout 1200s ./...

golden: ## rewrite script and table tests, then show the difference
	$(GO) test ./internal/meta/ ./internal/mirror/ -rewrite
	git diff --stat

fuzz: ## one fuzz target: make fuzz P=./internal/wire T=FuzzBatch D=60s
	$(GO) test $(P) -run '^$$' -fuzz '^$(T)$$' -fuzztime $(D) -fuzzminimizetime 1x

fuzz-smoke: ## every fuzz target for 2 s (about 2 minutes)
	@$(MAKE) -s fuzz-all D=2s

# Until Go 1.27 (golang/go#75804) the end of -fuzztime can fail a target with "context deadline exceeded" and no
# input: that is no finding, and the target runs again.
fuzz-all: ## every fuzz target for D, fails at the end on any finding: 26 of them, so D=60s takes half an hour
	@bad=; run() { $(GO) test ./$$(dirname $$1) -run '^$$' -fuzz "^$$2$$" -fuzztime $(D) -fuzzminimizetime 1x 2>&1; }; \
	for f in $$(git grep -lE '^func Fuzz' -- '*_test.go'); do \
	  for t in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$f); do \
	    out=$$(run $$f $$t) || { echo "$$out" | grep -qE '^ +context deadline exceeded$$' && ! echo "$$out" | grep -qE 'Failing input|_test.go:|panic' && \
	      echo "$$t: the time was over in the middle; again" && out=$$(run $$f $$t); } || { echo "$$out"; bad="$$bad $$t"; }; \
	    echo "$$t $$(echo "$$out" | grep execs | tail -1)"; done; done; \
	test -z "$$bad" || { echo "findings:$$bad"; exit 1; }

sim: ## the simulator: make sim D=60s SEED=n
	LOCKSTEP_SEED=$(SEED) $(GO) test ./internal/sim -run TestSim -v -sim.d=$(D) -timeout 0

# reactor.go is the only shell: it waits in a real ring, binds real sockets and starts goroutines. All else counts.
SHELLS := reactor.go
sim-coverage: ## statements of the data plane the simulator runs in 15 s, per file, without the shells; under 70 % fails
	@out=$$(mktemp -d) && trap 'rm -rf '$$out EXIT && \
	$(GO) test $(TAGS) ./internal/sim -run TestSim -count=1 -sim.d=15s -coverpkg=lockstep/dataplane -coverprofile=$$out/c && \
	sed -n 's|^lockstep/dataplane/\([^:]*\):.* \([0-9]*\) \([0-9]*\)$$|\1 \2 \3|p' $$out/c | grep -vE '^($(SHELLS)) ' | awk ' \
	  { all[$$1] += $$2; n += $$2; if ($$3 > 0) { run[$$1] += $$2; r += $$2 } } \
	  END { for (f in all) printf "%6.1f %%  %s\n", 100*run[f]/all[f], f | "sort -n"; close("sort -n"); \
	        printf "%6.1f %%  of %d statements, without $(SHELLS); at least 70 %%\n", 100*r/n, n; exit n == 0 || r < 0.7*n }'

bench: ## benchmarks of one package: make bench P=./segment
	$(GO) test $(P) -run '^$$' -bench . -benchmem -count 6

generate: ## regenerate internal/msg from its schemas
	$(GO) generate ./internal/msg/...

generate-plugin: ## regenerate plugins/pluginpb: needs protoc, PROTOC=...
	cd plugins/pluginpb && $(PROTOC) -I. --plugin=protoc-gen-go=$$($(GO) tool -n protoc-gen-go) --go_out=. --go_opt=paths=source_relative \
	  --plugin=protoc-gen-go-grpc=$$($(GO) tool -n protoc-gen-go-grpc) --go-grpc_out=. --go-grpc_opt=paths=source_relative lockstep_plugin.proto

size: ## lines per file of our own tree, largest first
	@git ls-files '*.go' | grep -vE '_test\.go|\.gen\.go' | xargs wc -l | sort -rn | head -25

demo: build ## the main job: two brokers, a 40 ms link, SYNC, kill the source, fail over, compare
	./$(BIN)/lockstep demo

demo-control: build ## the same without SYNC, ten times: it must see loss in at least nine
	@lost=0; for i in 1 2 3 4 5 6 7 8 9 10; do \
	  ./$(BIN)/lockstep demo --async > $(BIN)/demo-control.out 2>&1 && rc=0 || rc=$$?; \
	  tail -1 $(BIN)/demo-control.out; if [ $$rc -eq 1 ] && tail -1 $(BIN)/demo-control.out | grep -qE 'lost=[1-9]'; then lost=$$((lost+1)); fi; done; \
	  echo "$$lost of 10 runs saw loss"; test $$lost -ge 9

e2e: build ## real clients, 1 GiB byte-exact, both engines, 1 and 3 reactors (about 6 minutes)
	$(GO) test ./cmd/lockstep -run 'TestE2E' -v -timeout 1800s -e2e.bytes=1GiB

e2e-race: ## the same under the race detector, 64 MiB
	$(GO) test -race ./cmd/lockstep -run 'TestE2E' -v -timeout 1800s -e2e.bytes=64MiB -e2e.race

# It links only without the linker's check of names: giouring reaches into syscall.
test-giouring: export GOFLAGS += -tags=giouring,invariants -ldflags=-checklinkname=0
test-giouring: ## the tests of ring, data plane and broker over giouring in place of our own ring, e2e 1 GiB (about 2 minutes)
	GOFLAGS= $(GO) vet -tags giouring ./ioring
	$(GO) test -timeout 590s ./ioring ./dataplane
	$(GO) test ./cmd/lockstep -run 'TestE2E|TestRing|TestConnections|TestAckedIs|TestStoppedDestination|TestDemoLosesNothing|TestMalformed' -v -timeout 1200s -e2e.bytes=1GiB

kill-source: build ## 20 kills of the source per flush mode under load; lost must be 0 (about 10 minutes)
	$(GO) test ./cmd/lockstep -run 'TestKillSource' -v -timeout 3600s -kill.rounds=20

kafka: build ## mirror from Apache Kafka 4.3.1 (JVM, Maven), and its DumpLogSegments over our files
	$(GO) test ./cmd/lockstep -run TestMirrorFromKafka -v -timeout 600s -kafka

kill-control: ## the same harness with an acknowledgement planted before the report: it must lose
	$(GO) test ./cmd/lockstep -run 'TestKillControl' -v -timeout 1800s -kill.control

planted: ## plant every bug of testdata/planted in a worktree of HEAD: the test each names must go red (about 20 minutes)
	$(GO) test ./internal/planted -v -count=1 -timeout 3600s -planted

crash: ## every kind of crash at full size, counts by kind, one line to docs/reliability/ledger.jsonl: make crash A=-crash.seed=n (2 to 4 minutes)
	$(GO) run ./linux-test crash $(A)

linux-test: ## the suites that need a feature of the kernel: which ran, which were skipped and why (about 3 minutes)
	$(GO) run ./linux-test suites $(A)

malformed: build ## 100,000 malformed frames to a broker of each engine; memory, connections, goroutines as before (about 2 minutes)
	$(GO) test ./cmd/lockstep -run TestMalformedFrames -v -count=1 -timeout 1800s -malformed.frames=100000

swap-suite: build ## 2 minutes of swaps every 2 s, kills, stops and bad plugins under load; every event is accounted for (about 3 minutes)
	$(GO) test ./cmd/lockstep -run TestSwapSuite -v -count=1 -timeout 900s -swap.for=2m

plugin-p99: build ## produce p99 with plugins swapped, killed, stopped for 10 s, against none: 10 alternating pairs, and A/A pairs (about 20 minutes, on a quiet machine)
	$(GO) test ./cmd/lockstep -run TestPluginP99 -v -count=1 -timeout 2700s -plugin.pairs=10

plugin-rounds: build ## 100 brokers started, and killed at any moment; no plugin, socket or file may be left after 3 s (about a minute)
	$(GO) test ./cmd/lockstep -run TestPluginsGoWithTheirBroker -v -count=1 -timeout 900s -plugin.rounds=100

ack: build ## acknowledgement latency of one idle record: 40 ms link, and none, medians of 5 runs
	$(GO) test ./cmd/lockstep -run 'TestAckLatency' -v -timeout 900s -ack.runs=5

perf: build ## a broker of ours alone: latency at a rate, the most that goes, reading, mallocs of a request (about a minute)
	./$(BIN)/lockstep-perf produce --start --rate 20MB $(PERF)
	./$(BIN)/lockstep-perf produce --start --max $(PERF)
	./$(BIN)/lockstep-perf consume --start --bare
	./$(BIN)/lockstep-perf produce --start --max --batch 1 --record-size 100 --in-flight 32 --mallocs
	./$(BIN)/lockstep-perf produce --start --max --batch 1 --record-size 100 --in-flight 32 --mallocs --flush-ack durable
	./$(BIN)/lockstep-perf consume --start --fill 64MiB --max-bytes 1 --connections 8 --partitions 8 --again 15s --mallocs

perf-peers: build ## Apache Kafka 4.3.1 (JVM, Maven) and ours under the same load, in turns, into perf/RESULTS.md: PERF='--pairs 5' (about 90 minutes)
	./$(BIN)/lockstep-perf peers --out perf/results/peers.json $(PERF)
	./$(BIN)/lockstep-perf report

perf-engines: build ## our own ring, one reactor in place of two, epoll, and giouring, in turns, into perf/RESULTS.md: PERF='--pairs 5' (about 12 minutes)
	$(GO) build -tags giouring -ldflags '$(LDFLAGS) -checklinkname=0' -o $(BIN)/lockstep-giouring ./cmd/lockstep
	./$(BIN)/lockstep-perf peers --only engines --giouring $(BIN)/lockstep-giouring --out perf/results/engines.json $(PERF)
	./$(BIN)/lockstep-perf report

perf-ack: build ## acknowledgements over 10, 40 and 100 ms, appended and durable, and with one fetch under way, into perf/RESULTS.md: PERF='--runs 5' (about 30 minutes)
	./$(BIN)/lockstep-perf ack-table --out perf/results/ack.json $(PERF)
	./$(BIN)/lockstep-perf ack-table --fetches 1 --out perf/results/ack-one-fetch.json $(PERF)
	./$(BIN)/lockstep-perf report

bench-compare: ## benchmarks of HEAD and of REF in turns, through benchstat: make bench-compare REF=main [P=./segment] [N=6]
	GO=$(GO) ./perf/bench-compare.sh '$(REF)' '$(filter-out ./...,$(P))' '$(N)'

connections: build ## 5,000 connections to a broker of each engine, some half-open, dripping or deaf: bytes for each, idle CPU, a fresh client, all back after (about 2 minutes)
	$(GO) test ./cmd/lockstep -run 'TestManyConnections|TestConnectionLimit|TestIdleConnections' -v -count=1 -timeout 900s -connections.count=5000 -connections.idle=20s

soak: build ## a SYNC pair under a mixed load for SOAK=30m after 30 minutes of warm-up; memory, descriptors, goroutines, maps stay level (a quarter of a core, 62 minutes)
	./$(BIN)/lockstep-perf soak --duration $(SOAK) --out perf/results/soak.json
	./$(BIN)/lockstep-perf report

scale: build ## 100,000 partitions on one broker: idle cost, a record in each, restart; and 10,000 in SYNC (about 5 minutes)
	$(GO) test ./cmd/lockstep -run 'TestScale$$' -v -count=1 -timeout 3600s -scale.topics=1000 -scale.partitions=100 -scale.idle=30s
	$(GO) test ./cmd/lockstep -run 'TestScaleSync$$' -v -count=1 -timeout 3600s -scale.topics=100 -scale.partitions=100 -scale.idle=30s

man: build ## the manual in bin/man, a page a command, from the tree of commands
	./$(BIN)/lockstep man --dir $(BIN)/man

ci: lint test race fuzz-smoke sim-coverage crash ## what .ci/run calls: it runs the README's `make test` as it stands

clean: ## remove bin/
	rm -rf $(BIN)
