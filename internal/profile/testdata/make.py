"""Makes prefill.npz and decode.npz as the profiler of NVIDIA Dynamo writes its raw_data.npz.

The values are made up. Run it with NumPy 1.24 in this directory: python3 make.py
"""

import numpy as np

isl = np.array([100, 1000, 4000, 16000])
ttft = np.array([12.5, 60.25, 250.5, 1400.75])
np.savez("prefill.npz", prefill_isl=isl, prefill_ttft=ttft, prefill_thpt_per_gpu=(isl / ttft * 1000).astype(np.float32))

usage, context = np.meshgrid([0.1, 0.5, 0.9], [1000.0, 3000.0])
itl = 5 + 20 * usage + context / 1000
np.savez_compressed(
    "decode.npz",
    x_kv_usage=usage.ravel(),
    y_context_length=context.ravel(),
    z_itl=itl.ravel(),
    z_thpt_per_gpu=(usage * 64000 / context / itl * 1000).ravel(),
    max_kv_tokens=np.array([64000]),
)
