"""The command `pandora`: a verb is imported only when it runs.

`pandora --help`, shell completion and a mistyped verb import no verb, because the summaries are in this
module. Errors of all verbs are handled in one place (`Verbs.invoke`):

    exit code    when
    0            the command succeeded
    1            something outside failed (`UpstreamError`), or `collect` could not fill every cell
    2            invalid options, files or settings (`UsageError`, errors of click and of the file system)
    130          Ctrl-C
    141          standard output was closed (`pandora ... | head`); nothing is printed
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from pandora_router import __version__
from pandora_router.errors import PandoraError, UpstreamError, missing_package
from pandora_router.text import did_you_mean, printable

# section of the help -> verb -> summary
SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "What routing earns with six local specialists, in a minute.",
        "init": "Write a first config file for your own data.",
        "doctor": "Try your specialists; propose what the config should say.",
    },
    "From data to a router": {
        "collect": "Ask specialists, grade answers: a routing table.",
        "data": "Import scored answers into a routing table; check one.",
        "fit": "Fit a router on a routing table.",
        "curve": "Show what more money buys: right answers against cost.",
        "add": "Add a specialist to a router from a few dozen scored prompts.",
    },
    "Route": {
        "route": "Say who should answer a prompt, or a file of prompts.",
        "explain": "Show one decision step by step.",
        "warm": "Compile the search kernels now, for fast first decisions.",
    },
    "Serve": {
        "serve": "Run the gateway in front of your specialists.",
        "connect": "Let a coding agent use the gateway: Claude Code, Codex and others.",
        "keys": "Make, list and revoke API keys of the gateway.",
        "log": "Read the gateway's decisions; export traffic.",
        "learn": "Learn from the requests that the gateway served.",
        "bid": "Serve one specialist as a bidder of a market.",
    },
    "Measure": {
        "evaluate": "Compare ways of routing over fresh splits.",
        "compare": "Test two ways of routing against each other.",
        "sweep": "Evaluate ways of routing on your own estimates.",
        "market": "Hold and simulate markets in which specialists bid.",
        "bench": "Write a submission to a public benchmark.",
    },
}
SUMMARIES = {verb: summary for verbs in SECTIONS.values() for verb, summary in verbs.items()}
# verb -> its module, if that has another name; the command has the name of the verb
MODULES = {"compare": "evaluate", "sweep": "evaluate", "bid": "market_service"}

# library -> the extra of pyproject.toml that installs it
EXTRAS = {
    "pyarrow": "fit",
    "httptools": "http",
    "aiohappyeyeballs": "http",
    "orjson": "serve",
    "uvicorn": "serve",
    "uvloop": "serve",
    "psycopg": "postgres",
    "matplotlib": "plots",
    "faiss": "index",
    "ray": "ray",
    "sympy": "demo",
    "xllamacpp": "local",
    "torch": "transformer",
    "onnx": "transformer",
    "onnxruntime": "transformer",
    "litellm": "litellm",
    "genai_prices": "prices",
    "opentelemetry": "otel",
}

INTERRUPTED = 130
BROKEN_PIPE = 141


class Verbs(click.Group):
    """The group of all verbs: imports a verb's module when the verb runs, and turns errors into messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs, in the order of the help."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of verb `name` and return its command; None if there is no such verb."""
        if name not in SUMMARIES:
            return None
        command: click.Command = getattr(import_module(f"pandora_router.cli.{MODULES.get(name, name)}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb with which `args` begins; an unknown one is refused with the nearest verb as a hint."""
        name = args[0]
        if name not in SUMMARIES and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}. {did_you_mean(name, SUMMARIES)}".rstrip())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs and their summaries, section by section."""
        widest = max(map(len, SUMMARIES))
        for section, verbs in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(verb.ljust(widest), summary) for verb, summary in verbs.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs, and the options, that begin with `incomplete`."""
        verbs = [CompletionItem(v, help=s) for v, s in SUMMARIES.items() if v.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the requested verb; see the top of this module for exit codes."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            click.echo(printable(f"\nInterrupted. {stop}".rstrip()), err=True)
            ctx.exit(INTERRUPTED)
        except UpstreamError as error:
            raise UpstreamFailure(str(error)) from error
        except PandoraError as error:
            raise Failure(str(error)) from error
        except ModuleNotFoundError as error:
            library = (error.name or "").partition(".")[0]
            if library not in EXTRAS:
                raise
            missing = missing_package("this command", library, EXTRAS[library])
            raise Failure(str(missing)) from error
        except BrokenPipeError:
            # Python flushes the buffer at exit: redirect it to nowhere, or that would fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)
        except OSError as error:
            raise Failure(
                printable(f"{error.filename or 'file system'}: {error.strerror or error}")
            ) from error


class Failure(click.ClickException):
    """A `UsageError`, shown by click as one message on standard error."""

    exit_code = 2


class UpstreamFailure(Failure):
    """The same for an `UpstreamError`."""

    exit_code = 1


@click.command(
    "pandora",
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Start with: pandora demo
Help on a verb: pandora route -h
Shell completion, in the start file of your shell:
  bash  eval "$(_PANDORA_COMPLETE=bash_source pandora)"
  zsh   eval "$(_PANDORA_COMPLETE=zsh_source pandora)"
  fish  _PANDORA_COMPLETE=fish_source pandora | source
""",
)
@click.version_option(__version__, prog_name="pandora")
def main() -> None:
    """Decide, prompt by prompt, which estimates are worth buying and which specialist should answer."""
