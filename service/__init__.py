"""HTTP around trained SplineCNN networks.

The walk of a request:

    middleware.py   give it an id, count it, log it
    routes/         read, ask, answer
    codec.py        bytes -> arrays (meshfiles.py and images.py for files, oip.py for tensors)
    model.tasks     arrays -> a validated Graph
    engine.py       Graph -> queue (batching.py) -> packed batch -> runner.py -> one answer each
    express.py      the same for small graphs, without the interpreter
    answers.py      arrays -> bytes

Errors of every room become problem+json in errors.py; settings.py holds every knob.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
