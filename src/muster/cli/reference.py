"""docs/reference/cli.md, rendered from the commands' own help: `python -m muster.cli.reference` prints it."""

import sys

import click

from muster.cli.main import COMMANDS, muster

_HEAD = """\
# The command line

<!-- Rendered from the commands' help by `python -m muster.cli.reference`; a test fails when it is stale. -->
"""


def render() -> str:
    root = _context(muster, "muster")
    parts = [_HEAD, _block(muster, root)]
    for title, section in COMMANDS.items():
        parts.append(f"## {title}\n")
        for name in section:
            found = muster.get_command(root, name)
            assert found is not None
            context = _context(found, name, root)
            parts.append(f"### muster {name}\n\n{_block(found, context)}")
            if isinstance(found, click.Group):
                parts += [
                    f"#### muster {name} {inner}\n\n{_block(command, _context(command, inner, context))}"
                    for inner, command in found.commands.items()
                ]
    return "\n".join(parts)


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    return click.Context(
        command, parent, name, max_content_width=100, terminal_width=100, help_option_names=["-h", "--help"]
    )


def _block(command: click.Command, context: click.Context) -> str:
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    sys.stdout.write(render())
