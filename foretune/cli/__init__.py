"""The command line. Exit codes and JSON objects follow ``docs/formats.md``.

Every command is a function that takes the parsed arguments and returns an exit code; commands of
one family share a file. Heavy rooms are imported inside the commands, so that ``foretune --help``
is instant.

``_tune``, ``_run``, ``_compare`` (``bench``, too), ``_explain``, ``_collect``, ``_learn``
(``train``, ``eval``, ``rankers``), ``_graph`` with ``_graph_collect``, ``_journals`` (``db``),
``_device`` and ``_show`` (reports and lists) are the commands. ``_options`` and ``_stores`` are
what several of them share, ``_files`` refuses files that are read and written, ``_terminal`` keeps
libraries quiet.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from foretune import __version__
from foretune._store_url import without_credentials
from foretune.cli._collect import add_collect
from foretune.cli._compare import add_bench, add_compare
from foretune.cli._device import add_device
from foretune.cli._explain import add_explain
from foretune.cli._graph import add_graph
from foretune.cli._journals import add_db
from foretune.cli._learn import add_eval, add_rankers, add_train
from foretune.cli._options import INTERRUPTED, Parser
from foretune.cli._run import add_run
from foretune.cli._show import add_lists, add_probe, add_report
from foretune.cli._terminal import is_shown, only_our_words
from foretune.cli._tune import add_tune
from foretune.errors import BadInputError, ForetuneError

__all__ = ["INTERRUPTED", "entry", "main"]

_OBJECTS = 50_000
"""New objects after which Python looks for circles of garbage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = _parser().parse_args(given, argparse.Namespace(given=given))
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING,
        format="foretune: %(levelname)s: %(message)s",
        handlers=[_StandardError(args.verbose)],
    )
    try:
        with only_our_words(args.verbose):
            return int(args.command(args))
    except ForetuneError as error:
        print(f"foretune: {without_credentials(_one_line(str(error)))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("foretune: interrupted", file=sys.stderr)
        return INTERRUPTED
    except MemoryError as error:
        print(
            f"foretune: there is not enough memory ({_one_line(str(error)) or 'no more is told'}): "
            "take smaller shapes, or a machine that has more",
            file=sys.stderr,
        )
        return BadInputError.exit_code
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        # A path that the system refuses: its name is too long, it is locked, a link to itself...
        name = str(error.filename)
        shown = repr(name) if len(name) <= _LONGEST_PATH else f"{name[:_LONGEST_PATH]!r}..."
        print(
            f"foretune: {shown} cannot be used ({error.strerror}): give another path",
            file=sys.stderr,
        )
        return BadInputError.exit_code


_LONGEST_PATH = 120
"""Characters of a path in a message."""


class _StandardError(logging.Handler):
    """Writes to what ``sys.stderr`` is by then.

    A display of progress puts itself in its place for a while. What passed it by would be drawn
    over at once.
    """

    def __init__(self, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line; one that cannot be written is reported as ``logging`` does it."""
        if not is_shown(record, self._verbose):
            return
        try:
            print(without_credentials(self.format(record)), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def _one_line(message: str) -> str:
    return " ".join(message.split())


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="foretune", description="Makes tensor programs fast on the hardware at hand."
    )
    parser.add_argument("--version", action="version", version=f"foretune {__version__}")
    parser.add_argument("--verbose", action="store_true", help="log what happens")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    add_tune(commands)
    add_bench(commands)
    add_compare(commands)
    add_run(commands)
    add_collect(commands)
    add_train(commands)
    add_eval(commands)
    add_graph(commands)
    add_explain(commands)
    add_report(commands)
    add_probe(commands)
    add_lists(commands)
    add_rankers(commands)
    add_db(commands)
    add_device(commands)
    return parser


def entry() -> NoReturn:
    """Console entry: SIGTERM ends a run as Ctrl-C does, so that a stopped run keeps its best."""
    signal.signal(signal.SIGTERM, _interrupt)
    # Python looks for circles of garbage after every 700 new objects. A search makes millions that
    # live on, and no circles to speak of: looking took 3 to 11 % of the time of proposing.
    gc.set_threshold(_OBJECTS, 10, 10)
    sys.exit(main())


def _interrupt(*_: object) -> NoReturn:
    # Not SIGINT again: a shell that starts a job in the background has it ignored.
    raise KeyboardInterrupt
