# Every task of this tree is a target here, and CI runs the same targets.

CARGO ?= cargo

PREFIX ?= /usr/local
# The binaries to install: husk, and its shim for containerd. 'install' builds those that are empty.
HUSK ?=
SHIM ?=
# The commit that 'husk --version' prints.
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
# The target of release builds: with musl if it is installed.
TARGET = "$$(packaging/target.sh)"
export PREFIX DESTDIR

.PHONY: help run install uninstall dist test-dist test-publish check fuzz test soak integration integration-guest golden order examples doc bench bench-where bench-engines bench-hermetic bench-images bench-projects bench-restore bench-shims bench-spawn test-hermetic

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 20

run: ## build husk, print the plan of an example container and run it
	examples/hello/run.sh

install: ## install husk, its shim for containerd, its manual and completions below $(DESTDIR)$(PREFIX)
	test -n "$(HUSK)" || $(if $(COMMIT),HUSK_COMMIT=$(COMMIT) )$(CARGO) build --release --target $(TARGET)
	test -n "$(SHIM)" || $(if $(COMMIT),HUSK_COMMIT=$(COMMIT) )$(CARGO) build --release --target $(TARGET) --package husk-shim
	HUSK="$(or $(HUSK),$$(ls -t target/*/release/husk | head -n 1))" \
	SHIM="$(or $(SHIM),$$(ls -t target/*/release/containerd-shim-husk-v1 | head -n 1))" packaging/install.sh install

uninstall: ## remove the files of 'install'
	packaging/install.sh uninstall

dist: ## make the files of a release in target/dist: tarball, .deb, .rpm, bills of materials, checksums (ARCH=aarch64)
	$(if $(ARCH),ARCH=$(ARCH) )packaging/dist.sh

test-dist: ## make a release twice, in two homes, compare it, and install, use and remove its packages in clean rooms, as root
	integration/release/run.sh

test-publish: ## package and build every crate as crates.io would
	$(CARGO) publish --dry-run --workspace

check: ## check format, lints, unit tests and house rules, without root, in under a minute
	tests/check.sh

fuzz: ## fuzz every parser of untrusted input, a minute each (SECONDS=)
	tests/fuzz.sh $(or $(SECONDS),60)

integration: ## test podman, containerd, CRI-O, Kubernetes' interface and docker on husk, and nextest, go and pytest in sandboxes; installs or builds missing ones
	integration/run.sh

test: ## run every test and every example; installs missing tools if it can
	tests/test.sh

soak: ## run 10,000 containers, 10,000 processes in one, 1,000 at once; bytes through terminals; 20,000 races; 20,000 starts beside a spying neighbour; faults at every call; report leaks (CYCLES= WIDTH= EXECS= LIVE= BYTES= TERMINALS= STARTS=)
	integration/soak/run.sh $(or $(CYCLES),10000) $(or $(WIDTH),8) $(or $(EXECS),10000) $(or $(LIVE),1000) \
	    $(or $(BYTES),1073741824) $(or $(TERMINALS),100) $(or $(STARTS),20000)

integration-guest: ## test cgroups, systemd, AppArmor and the engines in an emulated Debian, which is built the first time (ARCH=aarch64: without the engines)
	ARCH=$(or $(ARCH),x86_64) integration/guest/tests.sh
	$(if $(filter aarch64,$(ARCH)),,integration/guest/engines.sh)

golden: ## rewrite the expected plans, pages, help, messages and results of attacks; review the difference
	HUSK_GOLDEN=write $(CARGO) test --quiet --package husk-plan --test golden
	HUSK_GOLDEN=write $(CARGO) test --quiet --package husk-hermetic --test listings --test page
	HUSK_GOLDEN=write $(CARGO) test --quiet --test tests help_matches
	HUSK_GOLDEN=write $(CARGO) test --quiet --test tests messages::
	HUSK_GOLDEN=write $(CARGO) test --quiet --test tests hostile::

order: ## regenerate the list of functions to place side by side in the binary (packaging/order), as root
	packaging/order/write.sh

examples: ## run every example program
	tests/examples.sh

doc: ## build the documentation of the libraries
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

bench: ## time every verb of husk, crun, runc and youki, and a sandbox, against a floor in C, in tables and a plot (ROUNDS=)
	ROUNDS=$(or $(ROUNDS),200) integration/bench/lifecycle/run.sh

bench-where: ## record with perf where the time of 'husk run' goes, as a table and a plot, as root (ROUNDS=)
	ROUNDS=$(or $(ROUNDS),200) integration/bench/lifecycle/where.sh

bench-engines: ## time a container under podman and containerd with husk, crun and runc, and weigh the shims, as tables (ROUNDS=)
	ROUNDS=$(or $(ROUNDS),50) integration/bench/engines/run.sh

bench-shims: ## time the shim beside containerd's shim for runc, without containerd and its clients, as root (ROUNDS=)
	$(CARGO) build --release --target $(TARGET) --bin husk
	$(CARGO) build --release --target $(TARGET) --package husk-shim --example inside
	ROUNDS=$(or $(ROUNDS),200) $(CARGO) bench --target $(TARGET) --package husk-shim --bench shims

bench-restore: ## compare checkpoint and restore by husk and runc with the same CRIU, and pauses with copies ahead of time, as root (ROUNDS= CRIU= RUNC=)
	ROUNDS=$(or $(ROUNDS),20) integration/bench/restore/run.sh

bench-spawn: ## compare spawn times with fork, vfork, posix_spawn, clone, std, tokio, command-group and duct, and ways to choose pids, in tables and plots
	integration/bench/spawn/run.sh

bench-hermetic: ## compare the time of a sandbox with bubblewrap and unshare at the same isolation (ROUNDS=)
	$(CARGO) build --release --target $(TARGET) --bin husk
	results=integration/bench/results/hermetic-$$(date -u +%Y-%m-%d).txt && \
	integration/bench/hermetic/run.sh $(or $(ROUNDS),300) >"$$results" && \
	integration/bench/hermetic/suite.sh $(or $(ROUNDS),10) >>"$$results" && cat "$$results"

bench-images: ## compare a throwaway container of a large image with podman and crun, and a remembered test in it, as root (ROUNDS=)
	$(CARGO) build --release --target $(TARGET) --bin husk
	results=integration/bench/results/hermetic-images-$$(date -u +%Y-%m-%d).md && \
	integration/bench/hermetic/images.sh $(or $(ROUNDS),20) >"$$results" && cat "$$results"

bench-projects: ## compare the tests of projects of crates.io, Go, PyPI and npm inside and outside the sandbox (ROUNDS=)
	$(CARGO) build --release --target $(TARGET) --bin husk
	results=integration/bench/results/hermetic-projects-$$(date -u +%Y-%m-%d).md && \
	ROUNDS=$(or $(ROUNDS),3) integration/hermetic/projects.sh >"$$results"; status=$$?; cat "$$results"; exit $$status

test-hermetic: ## run husk's own tests of pure code, each in its own sandbox
	$(CARGO) build --bin husk
	runner="$$(ls -t target/*/debug/husk | head -n 1) test --timeout 60s --runner" tests/hermetic.sh
