# Everything a developer runs. `make help` lists it.
SHELL := bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
KIT := $(CURDIR)/target/kit
export EMULATED_JUJU := $(KIT)/emulated-juju
# How the charm's programs are built for tests, and how the tests' own ones.
PROFILE ?= quick
TOOLS ?= quick
# What ships.
BINS := --bin dispatch --bin runc-gpu-wrapper --bin concourse-gpu

.PHONY: help charm lint unit fuzz chaos machines runtime gpu test demo demo-clean bench test-tools clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -ts $$'\t'

charm: ## concourse-ci-machine_amd64.charm, for juju deploy
	cargo build --release --locked $(BINS)
	# Started for every container and every process in one.
	[ "$$(stat -c %s target/release/runc-gpu-wrapper)" -le 1048576 ]
	tools/pack target/release/dispatch concourse-ci-machine_amd64.charm

lint: ## format, clippy, shellcheck
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	shellcheck benches/wrapper/{run,bash-jq,bash-jq-loop} tools/* tests/cloud tests/demo tests/demo-task tests/gpus tests/releases .ci/run tests/machines/machines tests/chaos/inside.sh tests/postgresql/{pack,dispatch} tests/standin/pack

unit: ## tests that need no machine
	cargo test --workspace --locked

fuzz: ## random input for the runtime wrapper, for FUZZ_SECONDS (else 10)
	CONCOURSE_RUNTIME_JOURNAL=/dev/null cargo test --profile quick --locked --test oci_properties fuzz -- --ignored --nocapture

chaos: ## leases under fire, with the real runc and containerd (root): CHAOS_ROUNDS rounds, else 100000
	type -P containerd >/dev/null || [ -n "$${CHAOS_CONTAINERD:-}" ] || apt-get install -y -qq --no-install-recommends containerd
	CHAOS_ROUNDS=$${CHAOS_ROUNDS:-100000} cargo test --profile quick --locked --test oci_chaos -- --ignored --nocapture --exact chaos

test-tools: ## what tests on machines and the demo need, into target/kit
	mkdir -p $(KIT)
	# Apart, so that the charm is built with its own features only, as it ships.
	cargo build --profile $(PROFILE) --locked -p concourse-ci-machine $(BINS)
	# What the tests have built already is not built again.
	[ $(TOOLS) = dev ] && others=--workspace || others="-p emulated-juju -p concourse-standin"
	cargo build --profile $(TOOLS) --locked $$others --bins
	for tool in emulated-juju concourse-standin; do
		strip -o $(KIT)/$$tool target/$(TOOLS:dev=debug)/$$tool
	done
	tools/pack target/$(PROFILE)/dispatch $(KIT)/concourse-ci-machine.charm
	tests/postgresql/pack $(KIT)/postgresql.charm
	STANDIN_BIN=$(KIT)/concourse-standin tests/releases $(KIT)/releases

machines: test-tools ## tests on LXD machines: real systemd, containerd, PostgreSQL
	tests/machines/machines up
	tests/machines/machines image
	# Two at a time take a third longer, and four are hardly quicker.
	cargo test --workspace --locked --test machines -- --ignored --test-threads=3

runtime: ## containers of the real runc (root): the wrapper, leases under fire for half a minute, driver trees, what gpu-test sees, a child that sleeps in the kernel
	type -P runc >/dev/null || apt-get install -y -qq --no-install-recommends runc
	type -P containerd >/dev/null || [ -n "$${CHAOS_CONTAINERD:-}" ] || apt-get install -y -qq --no-install-recommends containerd
	tests/machines/machines up
	tests/machines/machines image
	tests/machines/machines rootfs $(KIT)/image
	# NVIDIA's own hook, to compare with, is nothing that a fresh machine has.
	GPU_IMAGE=$(KIT)/image cargo test --workspace --locked --test oci_runc --test oci_chaos --test gpu_start --test gpu_trial --test asleep -- --ignored --test-threads=1 --skip gpu_tree_is_as_the_plain_spec

gpu: ## with a GPU of NVIDIA in this machine (root): NVML, our own generator, CUDA in a container; says SKIPPED without one
	type -P runc >/dev/null || apt-get install -y -qq --no-install-recommends runc
	cargo test --locked --test gpu_program -- --nocapture --exact a_real_gpu
	cargo test --locked --test gpu_trial -- --ignored --nocapture --exact trial_of_a_real_gpu

test: ## everything
	# The machines' image comes over the network; meanwhile programs are built.
	(tests/machines/machines up && tests/machines/machines image) & image=$$!
	$(MAKE) lint
	# Both end with what only one core works at.
	$(MAKE) -j2 unit charm
	wait $$image
	$(MAKE) machines runtime PROFILE=release TOOLS=dev

demo: ## from nothing to a web node, a database and two workers with GPUs on this computer (enable-gpu=false: without)
	ENABLE_GPU=$(or $(enable-gpu),true) tests/demo

demo-clean: ## nothing of the demo stays
	tests/demo clean

bench: test-tools ## ratios against peers, measured in one run
	cargo build --release --locked $(BINS)
	benches/wrapper/run
	benches/run

clean:
	cargo clean
