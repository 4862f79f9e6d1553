"""The spec of a `ModelDeployment`: what a user asks for.

Bounds and rules are part of the models; `apis.crd` turns them into the CRD. A default that is written here is
also set by the API server. What is left unset (None) is told apart from its default on purpose.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from apis.v1alpha1.base import ApiModel, Rule, immutable, map_list, rules
from apis.v1alpha1.engine import Engine
from apis.v1alpha1.flags import cel_is_tls_flag
from apis.v1alpha1.retirement import Retirement
from apis.v1alpha1.role import Role
from apis.v1alpha1.router import Router

LEAST_LLM_D_WITHDRAW_SECONDS: Final = 25
"""It has no list of its replicas to ask for: its metrics show a withdrawal, some scrapes later."""


class Model(ApiModel):
    """What is served."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            pattern=r"^[^-\s]\S*$",
            json_schema_extra=rules(immutable("the served name")),
        ),
    ]
    """The served name, as clients send it in `model`. Immutable."""

    path: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^-]")] | None = None
    """What the engine is given: a folder or a repository. The served name unless set."""


QueueName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]
"""The name of a LocalQueue, which Pods carry as the value of a label."""


def _cel_served(role: str) -> str:
    """CEL: the serving port of a role, as a list of one; of none where `servingPort` names none."""
    return f"{role}.ports.filter(p, has({role}.servingPort) ? p.name == {role}.servingPort : p == {role}.ports[0])"


_CEL_NAMED_AFTER_REPLICA: Final = (
    "q.name.startsWith(r.name + '-r') && q.name.substring(r.name.size() + 2).matches('^(0|[1-9][0-9]{0,3})$')"
)
"""CEL: whether role `q` has the name of one of role `r`'s replicas."""


class ModelDeploymentSpec(ApiModel):
    """One served model: its engine, its roles, and the router in front of them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.roles.filter(r, r.kind == 'Server').size() <= 1 || has(self.entryRole)",
                "entryRole is required with several Server roles",
                path=".entryRole",
                reason="FieldValueRequired",
            ),
            Rule(
                "!has(self.entryRole) || self.roles.exists(r, r.name == self.entryRole)",
                "entryRole must name one of roles",
                path=".entryRole",
            ),
            Rule(
                "self.roles.all(r, r.kind == 'Server') || self.roles.all(r, r.kind != 'Server')",
                "Server roles do not mix with Prefill and Decode roles",
                path=".roles",
            ),
            Rule(
                "['Prefill', 'Decode'].all(k, self.roles.filter(r, r.kind == k).size() <= 1)",
                "at most one role is of kind Prefill, and at most one of kind Decode",
                path=".roles",
            ),
            Rule(
                f"self.roles.all(r, r.size == 1 || !self.roles.exists(q, {_CEL_NAMED_AFTER_REPLICA}))",
                "a role of several Pods per replica needs the names <role>-r0, <role>-r1, … for its Services: "
                "no other role may have one of them",
                path=".roles",
            ),
            Rule(
                "self.engine.name != 'Custom' || self.roles.all(r, has(r.command))",
                "with the engine Custom every role brings its command",
                path=".roles",
                reason="FieldValueRequired",
            ),
            Rule(
                "!has(self.router) || self.router.name != 'vllm-router' || self.engine.name == 'vLLM'",
                "vllm-router serves vLLM only",
                path=".router.name",
            ),
            Rule(
                "!has(self.router) || self.router.name != 'sglang-gateway' || self.engine.name == 'SGLang'",
                "sglang-gateway serves SGLang only",
                path=".router.name",
            ),
            Rule(
                "!has(self.router) || self.router.name != 'llm-d-router' || "
                f"self.retirement.withdrawSeconds >= {LEAST_LLM_D_WITHDRAW_SECONDS}",
                f"with llm-d-router withdrawSeconds is at least {LEAST_LLM_D_WITHDRAW_SECONDS}",
                path=".retirement.withdrawSeconds",
            ),
            Rule(
                f"!has(self.router) || self.roles.all(r, {_cel_served('r')}.all(p, p.protocol == 'TCP'))",
                "behind a router the serving port is TCP",
                path=".roles",
            ),
            Rule(
                f"!has(self.router) || self.roles.all(r, {_cel_served('r')}.map(p, p.port) == "
                f"{_cel_served('self.roles[0]')}.map(p, p.port))",
                "behind a router all roles serve on one port",
                path=".roles",
            ),
            Rule(
                "!has(self.router) || self.roles.all(r, !has(r.extraArgs) || "
                f"!r.extraArgs.exists(a, {cel_is_tls_flag()}))",
                "behind a router engines serve plain HTTP, without a certificate",
                path=".roles",
            ),
        )
    )

    model: Model
    """What is served, under which name."""

    engine: Engine
    """What serves it."""

    entry_role: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """The role behind the Service `<deployment>`. Required with several Server roles, else the first."""

    queue_name: QueueName | None = None
    """The LocalQueue of Kueue that the replicas wait in for quota; without one Kueue is not involved. Not
    supported by this release yet."""

    router: Router | None = None
    """What stands in front of all roles. May be added and removed."""

    retirement: Annotated[
        Retirement,
        Field(
            json_schema_extra={
                "default": Retirement().model_dump(mode="json", by_alias=True, exclude_none=True)
            }
        ),
    ] = Retirement()
    """How a replica that the spec takes away leaves."""

    roles: Annotated[tuple[Role, ...], Field(min_length=1, max_length=10, json_schema_extra=map_list("name"))]
    """The replicas, by shape. Roles may be added, dropped and renamed."""

    @property
    def model_path(self) -> str:
        return self.model.path or self.model.name

    @property
    def entry(self) -> Role:
        """The role behind `<deployment>`. Raises LookupError when `entryRole` names none."""
        return self.roles[0] if self.entry_role is None else self.role(self.entry_role)

    def role(self, name: str) -> Role:
        """The role of that name; LookupError when there is none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise LookupError(f"no role {name!r}")
