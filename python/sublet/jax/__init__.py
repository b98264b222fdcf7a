"""JAX programs that run within a memory limit: values are recomputed where that saves most and costs least.

    import sublet.jax

    step = sublet.jax.fit(train_step, "50%", params, batch)     # arrays, or jax.ShapeDtypeStruct
    params, loss = step(params, batch)

`train_step` is a function of arrays, gradients included. Nothing in it has to be marked, as `jax.checkpoint` wants.
The limit is for what XLA itself says that the compiled program takes on a device.

Tried with JAX 0.10 on the processor.
"""

from ._fit import Fitted, fit, record
from ._report import Kept, Scan

__all__ = ["Fitted", "Kept", "Scan", "fit", "record"]
