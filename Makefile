# The one door: everything there is to do with this tree is a target here, and CI runs the same ones.

CARGO ?= cargo

.PHONY: help run check check-deep test soak golden examples doc bench-spawn

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 14

run: ## build husk, print the plan of an example container and run it
	examples/hello/run.sh

check: ## format, lints, unit tests, house rules: no root, under a minute
	tests/check.sh

check-deep: ## fuzz what reads configurations and profiles, a minute each
	tests/check-deep.sh

test: ## every test, and every example run; installs what tests need where it can
	tests/test.sh

soak: ## 2,000 containers and 1,000 processes in one, 8 at a time, and what is left of them: CYCLES=, EXECS=, WIDTH=
	integration/soak/run.sh $(or $(CYCLES),2000) $(or $(WIDTH),8) $(or $(EXECS),1000)

golden: ## write the expected plans and help anew; the difference is the review
	HUSK_GOLDEN=write $(CARGO) test --quiet --package husk-plan --test golden
	HUSK_GOLDEN=write $(CARGO) test --quiet --test tests help_is

examples: ## run every example program
	tests/examples.sh

doc: ## the documentation of the libraries
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

bench-spawn: ## spawn times against fork, vfork, posix_spawn, clone and std: tables and plots
	integration/bench/spawn/run.sh
