#!/bin/sh
# Take out of a virtual environment what serving never opens, and let it find the package in /app.
set -eu
site=$(echo "$1"/lib/python3*/site-packages)
# torch asks for its shared-memory manager when it is imported
find "$site/torch/bin" -type f ! -name torch_shm_manager -delete
rm -rf "$site/torch/test" "$site/torch/include" "$site/torch/share"
for package in networkx numpy scipy skimage sympy; do
  find "$site/$package" -type d -name tests -prune -exec rm -rf {} +
done
find "$site" -name '*.a' -delete
# names that only a debugger reads: 98 MB of torch and 12 MB of uvloop
strip --strip-unneeded "$site"/torch/lib/libtorch_cpu.so "$site"/torch/lib/libtorch_python.so \
  "$site"/uvloop/loop.*.so
echo /app > "$site/app.pth"
rm -rf "$site"/pip "$site"/pip-* "$site"/setuptools "$site"/setuptools-* "$site"/pkg_resources \
  "$site"/_distutils_hack "$site"/distutils-precedence.pth "$1"/bin/pip*
