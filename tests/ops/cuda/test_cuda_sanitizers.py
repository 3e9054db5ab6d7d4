"""The kernels under ThreadSanitizer and AddressSanitizer, and planted bugs that must be caught."""

import re

import emulated
import pytest

pytestmark = pytest.mark.skipif(emulated.compiler() is None, reason="no C++ compiler")


# the half types run the tensor-core paths, the others the plain ones
RACE_DTYPES = ["float32", "float16"]
DTYPES = ["float32", "float64", "float16", "bfloat16"]


@pytest.mark.parametrize("order", ["forward", "random:1"])
def test_no_kernel_has_a_race(order):
    program = emulated.link_program("driver.cpp", emulated.THREAD, kernels=True)
    done = emulated.run(program, *RACE_DTYPES, order=order)
    assert done.stdout == "clean\n" and done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize("order", ["forward", "reverse", "random:1"])
def test_no_kernel_leaves_its_memory(order):
    program = emulated.link_program("driver.cpp", emulated.ADDRESS, kernels=True)
    done = emulated.run(program, *DTYPES, order=order)
    assert done.stdout == "clean\n" and done.returncode == 0, done.stderr[:4000]


RIGHT = {"right-block": 2796160.0, "right-warp": 5548672.0, "right-atomic": 8.0}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("order", ["forward", "reverse", "random:1"])
@pytest.mark.parametrize("flags", [[], emulated.THREAD, emulated.ADDRESS], ids=lambda f: len(f))
def test_right_kernels_are_left_alone(name, order, flags):
    done = emulated.run(emulated.link_program("planted.cpp", flags), name, order=order)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.removeprefix("sum: ")) == pytest.approx(RIGHT[name])


@pytest.mark.parametrize(
    "name, message",
    [
        ("early-exit", "__syncthreads after 1 threads had exited"),
        ("two-barriers", "__syncthreads reached at two different places"),
        ("exited-lane", "a warp mask names lane 5, which has exited"),
        ("foreign-mask", "lane 0 is not in its own mask"),
        ("missing-syncthreads", "sum: -?nan"),  # shared memory is poisoned with NaN
        ("missing-syncwarp", "sum: -?nan"),
        ("unwritten", "sum: -?nan"),
    ],
)
@pytest.mark.parametrize("order", ["forward", "reverse", "random:1"])
def test_the_emulator_catches(name, message, order):
    done = emulated.run(emulated.link_program("planted.cpp", []), name, order=order)
    assert re.search(message, done.stdout), done.stdout


@pytest.mark.parametrize("name", ["missing-syncthreads", "missing-syncwarp", "global-race"])
def test_thread_sanitizer_catches(name):
    done = emulated.run(emulated.link_program("planted.cpp", emulated.THREAD), name)
    assert "ThreadSanitizer: data race" in done.stderr and "planted.cpp" in done.stderr


@pytest.mark.parametrize(
    "name, message",
    [
        ("beyond-global", "AddressSanitizer: heap-buffer-overflow"),
        ("beyond-shared", "AddressSanitizer: use-after-poison"),
        ("misaligned", "runtime error: load of misaligned address"),
    ],
)
def test_address_sanitizer_catches(name, message):
    done = emulated.run(emulated.link_program("planted.cpp", emulated.ADDRESS), name)
    assert message in done.stderr and done.returncode != 0
