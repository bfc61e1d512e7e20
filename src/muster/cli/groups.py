"""Groups of commands, which say what may have been meant. Imports click and nothing slower: see `cli.main`."""

import importlib

import click


class Group(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = importlib.import_module("difflib").get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f"did you mean `{near[0]}`?" if near else f"`{ctx.command_path} --help` lists them"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)
