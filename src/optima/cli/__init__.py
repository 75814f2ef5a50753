"""The command line: one file per verb. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

import signal
import sys
from io import TextIOWrapper

import typer

from optima.cli.demo import demo
from optima.cli.output import UsageError, sentence
from optima.cli.preview import preview
from optima.cli.reproduce import reproduce
from optima.version import __version__

app = typer.Typer(
    name="optima",
    help="Learn how strongly to augment, jointly with the model, in one training run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(preview)
app.command()(reproduce)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"optima {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Options of every verb."""


def _stop(number: int, frame: object) -> None:
    """Leave by the way of an exception, so that worker processes are ended too."""
    sys.exit(128 + number)


def main() -> None:
    """Run the command line; what goes wrong is one clear line, never a traceback (except under `python -X dev`)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot write φ gets a question mark, not a failure
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        print(f"optima: {sentence(error)}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
