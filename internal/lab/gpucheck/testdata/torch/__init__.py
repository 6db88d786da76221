"""As much of PyTorch as scripts/gpu-check-torch.py uses. Nothing is computed: operations are
counted and shapes are checked, and time is how many operations a graph has."""

import os

__version__ = "2.0-pretended"
bfloat16 = "bfloat16"


class Tensor:
    def __init__(self, shape):
        self.shape = shape

    def __getitem__(self, i):
        assert 0 <= i < self.shape[0]
        return Tensor(self.shape[1:])


def randn(*shape, device, dtype):
    assert device == "cuda" and dtype == bfloat16 and all(n > 0 for n in shape)
    if os.environ.get("PRETENDED_ROOM") and max(shape) > int(os.environ["PRETENDED_ROOM"]):
        raise cuda.OutOfMemoryError("no room\nfor it")
    return Tensor(shape)


class _Functional:
    def linear(self, x, w):
        assert x.shape[1] == w.shape[1], "inner dimensions"
        cuda.done += 1

    def scaled_dot_product_attention(self, q, k, v, is_causal, enable_gqa):
        assert enable_gqa and k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3] and q.shape[1] % k.shape[1] == 0
        assert is_causal == (q.shape[2] > 1)
        cuda.done += 1


class nn:
    functional = _Functional()


class version:
    cuda = "13.0"


class cuda:
    done = 0  # operations that were computed
    clock = 0.0  # milliseconds
    capturing = None

    class OutOfMemoryError(RuntimeError):
        pass

    class Stream:
        def synchronize(self):
            pass

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = cuda.clock

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return end.at - self.at

    class CUDAGraph:
        def replay(self):
            cuda.clock += 0.5 * self.operations

    @staticmethod
    def is_available():
        return os.environ.get("PRETENDED_CUDA") != "no"

    @staticmethod
    def get_device_properties(index):
        assert index == 0

        class Properties:
            name, major, minor = "Fake H200", 9, 0

        return Properties

    @staticmethod
    def empty_cache():
        pass

    class stream:
        def __init__(self, s):
            pass

        def __enter__(self):
            pass

        def __exit__(self, *e):
            pass

    class graph:
        def __init__(self, g):
            self.g = g

        def __enter__(self):
            self.before = cuda.done

        def __exit__(self, *e):
            self.g.operations = cuda.done - self.before
