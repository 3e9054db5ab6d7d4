#!/bin/sh
# Write the *.lock files anew: exact versions with the hashes pip checks. Needs uv on PATH.
# TORCH_WHEEL: the CPU wheel of torch as a file, where its index is out of reach.
set -eu
cd "$(dirname "$0")"
lock() {
  uv pip compile --quiet --generate-hashes --no-annotate --no-header --python-version 3.11 \
    --python-platform x86_64-manylinux_2_36 "$@"
}

torch=$(grep -o 'torch==[0-9.]*' ../../pyproject.toml | head -1)
# torch differs between the targets; everything else is the same in both
lock ../../pyproject.toml run.in |
  awk '/^[^ ]/ { out = /^(torch==|triton==|nvidia-|cuda-)/ ? "torch-cuda.lock" : "run.lock" }
       { print > out }'
if [ -n "${TORCH_WHEEL:-}" ]; then
  echo "$torch+cpu --hash=sha256:$(sha256sum "$TORCH_WHEEL" | cut -d' ' -f1)" > torch-cpu.lock
else
  echo "$torch+cpu" | lock --no-deps --index=https://download.pytorch.org/whl/cpu - > torch-cpu.lock
fi
for name in build tools ray; do lock "$name.in" --constraint run.lock > "$name.lock"; done
lock nvcc.in > nvcc.lock
