"""The `splinecnn` command: each subcommand reads its arguments and calls one function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from rich.console import Console
from rich.text import Text

from service.settings import Settings

_HELP = """Serve, train and export SplineCNN models for meshes and graphs.

Example: splinecnn serve, then splinecnn predict scan.ply --against http://127.0.0.1:8000

Exit codes: 0 done; 1 could not be done, the last line says why; 2 asked wrongly, or cannot serve; \
130 stopped by Ctrl-C.

Tab completion: splinecnn --install-completion
"""
app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_out = Console(highlight=False)
_err = Console(stderr=True, highlight=False)

Data = Annotated[Path, typer.Option("--data", help="Directory of the data sets.")]
Models = Annotated[Path, typer.Option("--models", help="Directory of bundles.")]
Against = Annotated[
    str | None, typer.Option("--against", metavar="URL", help="Ask a running service instead.")
]


def main() -> None:
    """Entry point: an error the user can mend is one line and exit code 1, never a trace."""
    from model.errors import SplineCNNError
    from service.client import ServiceError

    try:
        app()
    except (SplineCNNError, ServiceError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(why: str) -> NoReturn:
    _err.print("[bold red]error:[/]", Text(why), soft_wrap=True)
    sys.exit(1)


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal while something goes on; call it with what is done, of how many."""
    from rich.progress import Progress

    with Progress(console=_err, transient=True) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _flag(name: str, kind: Any, text: str) -> inspect.Parameter:
    option = typer.Option(help=text, show_default=False)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _flags_of_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option per setting: the same field, type, sentence and default."""
    parameters = []
    for name, field in Settings.model_fields.items():
        simple = field.annotation if field.annotation in (int, float, bool) else str
        default = field.get_default(call_default_factory=True)
        shown = "" if default in (None, {}, []) else f" [default: {default}]"
        parameters.append(_flag(name, simple, f"{field.description}{shown}"))
    ray = "Serve by Ray, with replicas that come and go with the load."
    parameters.append(_flag("ray", bool, ray))
    parameters.append(_flag("replicas", str, "With --ray: how many, as 2 or as 1:4. [default: 1]"))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _settings(**given: Any) -> Settings:
    try:
        return Settings(**given)
    except ValidationError as error:
        for problem in error.errors():
            _err.print("[bold red]error:[/]", Text(_explain(problem)), soft_wrap=True)
        raise typer.Exit(2) from None


def _explain(problem: ErrorDetails) -> str:
    """What is wrong with which flag; the value only of a field that is no secret."""
    said = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:  # about several fields; its input is all of them, keys included
        return said
    name = str(problem["loc"][0])
    field = Settings.model_fields.get(name)
    secret = field is None or "Secret" in str(field.annotation)
    flag = "--" + name.replace("_", "-")
    told = secret or ", got " in said
    return f"{flag}: {said}" + ("" if told else f", got {problem['input']!r}")


@app.command()
@_flags_of_settings
def serve(ray: bool | None, replicas: str | None, **given: Any) -> None:
    """Run the HTTP service. Every option is also an environment variable, SPLINECNN_<OPTION>.

    Example: splinecnn serve --port 8080 --models bundles
    """
    settings = _settings(**{name: value for name, value in given.items() if value is not None})
    if ray:
        from service.ray_app import run_ray

        raise typer.Exit(run_ray(settings, replicas or "1"))
    from service.server import run

    raise typer.Exit(run(settings))


@app.command()
def predict(
    file: Annotated[Path, typer.Argument(help="A mesh (.ply .obj .off .stl .glb), a graph or mesh "
                                              "as JSON, or an image (.png .jpg).")],
    model: Annotated[str | None, typer.Option(help="Which model; the task's first if not said.")]
    = None,
    top_k: Annotated[int, typer.Option(min=1, help="Candidates per vertex of a mesh.")] = 1,
    include: Annotated[str | None, typer.Option(help="What else to answer, such as "
                                                     "landmarks,segments,points,reverse.")] = None,
    refine: Annotated[bool, typer.Option("--refine", help="A better answer in more time, where "
                                                          "the model offers it.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write: .json, .npy, or .ply coloured "
                                                  "by correspondence (by segments, if these are "
                                                  "included). Default: JSON to the terminal.")]
    = None,
    models: Models = Path("bundles"),
    against: Against = None,
) -> None:  # fmt: skip
    """Answer one file, here or by a running service.

    Example: splinecnn predict scan.ply --out coloured.ply
    """
    from service.predict import Ask, answer_file, write_answer

    ask = Ask(model, top_k, include, refine)
    answer = answer_file(file, ask, models, against)
    if warning := answer.body.get("warning"):
        _err.print(f"[bold yellow]warning:[/] {warning}", soft_wrap=True)
    write_answer(answer, out, _out)


@app.command()
def models(models: Models = Path("bundles"), against: Against = None) -> None:
    """List the models in a bundle directory, or of a running service.

    Example: splinecnn models --against http://127.0.0.1:8000
    """
    from service.predict import list_models

    _out.print(list_models(models, against))


@app.command()
def export(
    names: Annotated[list[str] | None, typer.Argument(help="Models of the zoo, or directories.")]
    = None,
    all_: Annotated[bool, typer.Option("--all", help="Every model of the zoo.")] = False,
    zoo: Annotated[Path, typer.Option(help="Directory of trained weights.")] = Path("zoo"),
    out: Annotated[Path, typer.Option(help="Directory of bundles to write into.")]
    = Path("bundles"),
    sign: Annotated[Path | None, typer.Option(help="Private Ed25519 key (PEM) to sign with.")]
    = None,
) -> None:  # fmt: skip
    """Turn trained weights into bundles, proving TorchScript and ONNX equal on the way.

    Example: splinecnn export bodies --out bundles
    """
    from model.errors import BundleError
    from model.export import export_bundle
    from model.signing import read_private_key

    key = None if sign is None else read_private_key(sign)
    chosen = [zoo / name if (zoo / name).is_dir() else Path(name) for name in names or []]
    if all_:
        chosen = sorted(path.parent for path in zoo.glob("*/model.json"))
    if not chosen:
        raise BundleError(f"nothing to export: name a model, or use --all (looked in {zoo}/)")
    for source in chosen:
        with _err.status(f"exporting {source.name}"):
            target = export_bundle(source, out, key=key)
        _out.print(f"{source.name} → {target}")


@app.command()
def sign(
    bundles: Annotated[list[Path], typer.Argument(help="Directories <name>/<version> to sign.")],
    key: Annotated[Path, typer.Option(help="Private Ed25519 key (PEM); make one with 'openssl "
                                           "genpkey -algorithm ed25519 -out KEY'.")],
) -> None:  # fmt: skip
    """Sign bundles, and print the public key for SPLINECNN_TRUSTED_KEYS.

    Example: splinecnn sign bundles/cora/1 --key release.pem
    """
    from model.signing import public_key, read_private_key, sign_bundle

    private = read_private_key(key)
    for bundle in bundles:
        _err.print(f"wrote {sign_bundle(bundle, private)}")
    _out.print(public_key(private))


@app.command()
def train(
    task: Annotated[str, typer.Argument(help="cora, mnist-superpixels, mnist-grid, bodies, faust, "
                                             "meshes (your own, same topology) or graph (your "
                                             "own).")],
    data: Data = Path("data"),
    out: Annotated[Path | None, typer.Option(help="Where to write; runs/<task> if not said.")]
    = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    name: Annotated[str | None, typer.Option(help="Name of the model; the task's if not said.")]
    = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to take; the recipe's if not "
                                                          "said.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; all cores if not said.")]
    = None,
) -> None:  # fmt: skip
    """Train a network. Ctrl-C keeps a checkpoint that --resume goes on from.

    Example: splinecnn train cora --data data --out zoo/cora
    """
    from model.train import train as run

    target = out or Path("runs") / task
    result = run(task, data, target, resume, name, steps, seed, threads)
    if not result.finished:
        _err.print(f"stopped after {result.steps} steps; --resume goes on from there")
        raise typer.Exit(130)
    _out.print(f"wrote {target}; serve it with: splinecnn export {target}")


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A directory of the zoo, of a run, or a bundle.")],
    data: Data = Path("data"),
    out: Annotated[Path, typer.Option(help="Where to write scores and pictures.")]
    = Path("runs/evaluation"),
    task: Annotated[str | None, typer.Option(help="Which test data, if the model does not say.")]
    = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first test graphs.")] = None,
    runs: Annotated[int, typer.Option(min=0, help="Cora: also train and test this many seeds.")]
    = 0,
    splines: Annotated[
        int, typer.Option(min=0, help="Superpixels: also train every degree m this many steps.")
    ] = 0,
    record: Annotated[bool, typer.Option("--record", help="Write the scores into model.json.")]
    = False,
) -> None:  # fmt: skip
    """Measure a model on its test data, through its TorchScript, and draw the pictures.

    Example: splinecnn evaluate zoo/cora --data data --runs 100
    """
    from model.evaluate import evaluate as run

    with _bar(model.name) as progress:
        scores = run(model, data, out, task, limit, runs, record, splines, progress)
    for name, value in scores.items():
        _out.print(f"{name}: {value}")


@app.command()
def data(
    task: Annotated[
        str, typer.Argument(help="cora, mnist-superpixels, mnist-grid, bodies or faust.")
    ],
    data: Data = Path("data"),
) -> None:
    """Check or make the data of a task, and say where people get what is missing.

    Example: splinecnn data bodies --data data
    """
    from model.train import prepare_data

    with _bar(task) as progress:
        where = prepare_data(task, data, progress)
    _out.print(f"the data of {task} is in {where}")


@app.command()
def bench(
    models: Models = Path("bundles"),
    runtime: Annotated[str, typer.Option(help="torchscript or onnx.")] = "torchscript",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seconds: Annotated[float, typer.Option(min=0.01, help="Time to spend on each model.")] = 2.0,
) -> None:
    """Time each model's own sample on this machine, without HTTP.

    Example: splinecnn bench --runtime onnx
    """
    settings = _settings(runtime=runtime, device=device)
    from service.bench import measure
    from service.runner import DeviceError

    try:
        with _err.status("measuring"):
            table = measure(models, settings, seconds)
    except DeviceError as error:
        _err.print(f"[bold red]error:[/] {error}", soft_wrap=True)
        raise typer.Exit(2) from None
    _out.print(table)


@app.command()
def doctor(models: Models = Path("bundles")) -> None:
    """Say what is installed, what is not, and what to do about it. Exit code 1 if not servable.

    Example: splinecnn doctor --models bundles
    """
    from service.doctor import examine

    healthy = examine(models, _out)
    raise typer.Exit(0 if healthy else 1)


if __name__ == "__main__":
    main()
