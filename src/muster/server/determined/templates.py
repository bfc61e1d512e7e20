"""Templates of configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from muster.accounts import templates as books
from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.service import UNCATEGORIZED
from muster.accounts.templates import TemplateFilter, Templates
from muster.api import errors
from muster.api.raw import JSON
from muster.server.determined import acting, paging
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route


class Template(Message, frozen=True):
    name: str = ""
    config: Mapping[str, JSON] = {}
    workspace_id: Id = 0


class TemplateReply(Message, frozen=True):
    template: Template


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    NAME = "SORT_BY_NAME"


class GetTemplates(Paged, frozen=True):
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    name: str = ""
    workspace_ids: Sequence[Id] = ()


class GetTemplatesReply(Message, frozen=True):
    templates: Sequence[Template]
    pagination: Pagination


class TemplateNamed(Message, frozen=True):
    template_name: str = ""


class PostTemplate(Message, frozen=True):
    """`template_name` is in the path, `name` in the body: they are the same."""

    template_name: str = ""
    name: str = ""
    config: Mapping[str, JSON] = {}
    workspace_id: Id = 0


class PatchConfig(Message, frozen=True):
    template_name: str = ""
    config: Mapping[str, JSON] = {}


class PatchName(Message, frozen=True):
    old_name: str = ""
    new_name: str = ""


class _Templates:
    def __init__(self, templates: Templates, authorizer: Authorizer) -> None:
        self._templates = templates
        self._authorizer = authorizer

    async def workspace(self, call: Call, asked: TemplateNamed | PatchConfig) -> WorkspaceId:
        return await self._place(call, asked.template_name)

    async def workspace_renamed(self, call: Call, asked: PatchName) -> WorkspaceId:
        return await self._place(call, asked.old_name)

    async def _place(self, call: Call, name: str) -> WorkspaceId:
        """Of a template that may be seen; else the answer is the same as if it were not there."""
        found = await self._templates.get(name)
        if not await self._authorizer.allows(call.caller, Permission.VIEW_TEMPLATES, found.workspace):
            raise Hidden(books.not_found(name).message)
        return found.workspace

    async def list(self, call: Call, asked: GetTemplates) -> GetTemplatesReply:
        visible = await self._authorizer.workspaces(call.caller, Permission.VIEW_TEMPLATES)
        chosen = TemplateFilter(asked.name, asked.workspace_ids, visible)
        page = await self._templates.list(chosen, descending=asked.order_by is OrderBy.DESC, window=asked.window)
        return GetTemplatesReply(
            templates=[_told(template) for template in page.items], pagination=paging.told(page, asked)
        )

    async def get(self, call: Call, asked: TemplateNamed) -> TemplateReply:
        return TemplateReply(template=_told(await self._templates.get(asked.template_name)))

    async def create(self, call: Call, asked: PostTemplate) -> TemplateReply:
        return TemplateReply(template=_told(await self._templates.create(acting.by(call), _wanted(asked))))

    async def put(self, call: Call, asked: PostTemplate) -> TemplateReply:
        """Also where one is there, which keeps its workspace: then that one must allow it."""
        wanted = _wanted(asked)
        try:
            present = await self._templates.get(wanted.name)
        except errors.NotFound:
            pass
        else:
            if not await self._authorizer.allows(call.caller, Permission.VIEW_TEMPLATES, present.workspace):
                raise books.taken(wanted.name)
            await self._authorizer.check(call.caller, Permission.EDIT_TEMPLATES, present.workspace)
            wanted = replace(wanted, workspace=present.workspace)
        made = await self._templates.create(acting.by(call), wanted, instead=True)
        return TemplateReply(template=_told(made))

    async def patch(self, call: Call, asked: PatchConfig) -> TemplateReply:
        changed = await self._templates.set_config(acting.by(call), asked.template_name, asked.config)
        return TemplateReply(template=_told(changed))

    async def rename(self, call: Call, asked: PatchName) -> TemplateReply:
        return TemplateReply(
            template=_told(await self._templates.rename(acting.by(call), asked.old_name, asked.new_name))
        )

    async def delete(self, call: Call, asked: TemplateNamed) -> Nothing:
        await self._templates.delete(acting.by(call), asked.template_name)
        return Nothing()


def _told(template: books.Template) -> Template:
    return Template(name=template.name, config=template.config, workspace_id=template.workspace)


def _wanted(asked: PostTemplate) -> books.Template:
    name = asked.template_name or asked.name
    if asked.name and asked.name != name:
        raise errors.BadRequest(f"name: must be the same as in the path, {name!r}")
    return books.Template(name, WorkspaceId(asked.workspace_id or UNCATEGORIZED), dict(asked.config))


async def _of(call: Call, asked: PostTemplate) -> WorkspaceId:
    return WorkspaceId(asked.workspace_id or UNCATEGORIZED)


def routes(templates: Templates, authorizer: Authorizer) -> Sequence[Route]:
    handlers = _Templates(templates, authorizer)
    each, new = "/api/v1/templates/{templateName}", "/api/v1/templates/{template_name}"
    view: Rule[TemplateNamed] = Rule(Permission.VIEW_TEMPLATES, handlers.workspace)
    edit: Rule[TemplateNamed] = Rule(Permission.EDIT_TEMPLATES, handlers.workspace)
    patch: Rule[PatchConfig] = Rule(Permission.EDIT_TEMPLATES, handlers.workspace)
    rename = Rule(Permission.EDIT_TEMPLATES, handlers.workspace_renamed)
    create = Rule(Permission.EDIT_TEMPLATES, _of)
    return (
        route("GET", "/api/v1/templates", GetTemplates, GetTemplatesReply, known(), handlers.list),
        route("GET", each, TemplateNamed, TemplateReply, view, handlers.get),
        route("POST", new, PostTemplate, TemplateReply, create, handlers.create),
        route("PUT", new, PostTemplate, TemplateReply, create, handlers.put),
        route("PATCH", each, PatchConfig, TemplateReply, patch, handlers.patch, body="config"),
        route("DELETE", each, TemplateNamed, Nothing, edit, handlers.delete),
        route("PATCH", "/api/v1/template/rename", PatchName, TemplateReply, rename, handlers.rename),
    )
