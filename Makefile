# What there is to do here. Everything is plain Go; these are its command lines.

.PHONY: build test race stress fuzz long release image bench bench-quick profile docs screenshots lint hooks ci

build: ## the lapse binary, into the current directory
	CGO_ENABLED=0 go build -trimpath -buildvcs=auto -ldflags="-s -w" ./cmd/lapse

test: ## the tests of lapse, without the race detector and the fuzzers
	go test ./...

race: ## everything under the race detector
	go test -race -timeout 40m ./...
	go -C client/otel test -race ./...

stress: ## the tests that have a long version, at length: hours
	TEST_STRESS=1 go test -timeout 12h ./...

FUZZTIME ?= 1m
FUZZIN ?= .
fuzz: ## each fuzz target below FUZZIN for FUZZTIME
	@grep -rlE --include='*_test.go' '^func Fuzz' $(FUZZIN) | while read -r file; do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$file); do \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./$$(dirname $$file) || exit 1; \
	  done; \
	done

long: ## all that is too long for every change: hours
	-{ command -v chromium && command -v redis-server && command -v jq && command -v debootstrap && command -v rpm && command -v systemd-analyze; } || { apt-get -qq update && apt-get -qq install -y chromium redis-server jq debootstrap rpm systemd; }
	CI=true go -C test/tools test ./...
	sdk/typescript/ci runtimes
	go -C test/bench test ./...
	go -C test/helm test ./...
	go -C test/release test -timeout 1h ./...
	@# Without what drives processes by signals, and processor/machine, whose tests use that.
	for os in windows darwin; do GOOS=$$os go vet $$(go list ./... | grep -vE 'lapse/(test|processor/machine$$)') || exit 1; done
	$(MAKE) race fuzz bench-quick stress

release: ## archives, packages, SBOM and sums into dist, of the tag or a snapshot: minutes
	test/release/release.sh

image: ## the container image lapse, of a binary that is built here; needs Docker or DOCKER=podman
	deploy/image.sh

bench: ## lapse beside its peers, into test/bench/table/table.json and docs/benchmarks.md: about an hour
	go -C test/bench run ./table

bench-quick: ## less of the same, and whether a ratio is worse by a third than it was: minutes
	go -C test/bench run ./table -quick

WORK ?= upsert-os-256
PROFILES ?= profiles
profile: ## profiles of lapse in a benchmark, like WORK=upsert-fsync-64 or mutations, into PROFILES, and the top of each
	@mkdir -p $(PROFILES) && rm -f $(PROFILES)/*.pprof
	BENCH_PROFILES=$(abspath $(PROFILES)) go -C test/bench test -run '^$$' -bench '(?i)$(subst -,/(?i),$(WORK))$$' -benchtime 1x .

docs: ## the generated pages of the manual, and nats.conf's permissions
	go test ./docs ./cmd/lapse -run '^Test(Metrics|Flags)Page$$' -update
	go test ./processor/gate -run '^TestFiles$$' -update
	go -C client/otel test -run '^TestFromRequestToExpiry$$' -update

screenshots: ## the pictures of docs/console.md; needs chromium
	TEST_SCREENSHOTS=$(CURDIR)/docs/console go -C test/tools test ./console -count 1 -run '^TestScreenshots$$'

lint: ## what CI checks besides the tests
	gofmt -l .
	for module in . client/otel examples test/bench test/tools test/release test/helm; do \
	  { [ $$module = client/otel ] || go -C $$module mod tidy -diff; } && go -C $$module vet ./... && go -C $$module tool staticcheck ./... || exit 1; \
	done

hooks: ## git checks the subject of each commit from now on
	git config core.hooksPath .githooks

ci: ## all that has to pass before a change lands
	.ci/run
