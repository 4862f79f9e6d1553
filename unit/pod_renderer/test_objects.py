"""Names, selectors and the endpoint: what other objects rely on."""

from __future__ import annotations

from typing import Any

import pytest

from apis.v1alpha1 import labels
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.router import render_router, router_argv
from controller.pod_renderer.services import endpoint, front_service, render_services
from unit.pod_renderer.specs import OWNER, pod, spec


def selects(selector: dict[str, str], rendered: dict[str, Any]) -> bool:
    return bool(selector.items() <= rendered["metadata"]["labels"].items())


def test_every_service_selects_its_replicas_and_no_reserved_one() -> None:
    """Both Services find a new Pod, and lose it with the eligibility label."""
    rendered = pod()
    for service in render_services(OWNER, spec()):
        assert selects(service["spec"]["selector"], rendered)
    del rendered["metadata"]["labels"][labels.ENDPOINT_ELIGIBLE]
    for service in render_services(OWNER, spec()):
        assert not selects(service["spec"]["selector"], rendered)


def router_selector(wanted: ModelDeploymentSpec) -> dict[str, str]:
    assert wanted.router is not None
    argv = router_argv(OWNER, wanted, wanted.router)
    start = argv.index("--selector") + 1
    end = next(index for index in range(start, len(argv)) if argv[index].startswith("--"))
    return dict(pair.split("=", 1) for pair in argv[start:end])


def test_the_router_discovers_replicas_and_never_itself() -> None:
    """The router's selector finds a new replica, not a reserved one, and not a router Pod."""
    wanted = spec(router={})
    selector, rendered = router_selector(wanted), pod(router={})
    assert selects(selector, rendered)
    template = render_router(OWNER, wanted)[-1]["spec"]["template"]
    assert not selects(selector, template)
    del rendered["metadata"]["labels"][labels.ENDPOINT_ELIGIBLE]
    assert not selects(selector, rendered)


def test_the_routers_service_and_deployment_agree() -> None:
    """The router's Service selects the Deployment's Pods and sends to a port that they open."""
    *_, service, deployment = render_router(OWNER, spec(router={}))
    template = deployment["spec"]["template"]
    assert selects(service["spec"]["selector"], template)
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    opened = {port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == opened


def test_extra_arguments_cannot_reach_the_selector() -> None:
    """The router's list-valued `--selector` is closed by a flag of ours before the user's arguments begin."""
    wanted = spec(router={"extraArgs": ["--log-level", "debug"]})
    assert set(router_selector(wanted)) == {
        labels.NAME,
        labels.INSTANCE,
        labels.MANAGED_BY,
        labels.MEMBER,
        labels.ENDPOINT_ELIGIBLE,
    }


def test_no_router_no_objects() -> None:
    """Without a router nothing of one is rendered."""
    assert render_router(OWNER, spec()) == []


@pytest.mark.parametrize(
    ("fields", "router_ready", "url"),
    [
        ({}, False, "http://chat.models.svc:8000"),
        ({"extraArgs": ["--ssl-keyfile", "/k"]}, False, "https://chat.models.svc:8000"),
        ({"router": {}}, False, "http://chat.models.svc:8000"),
        ({"router": {}}, True, "http://chat-router.models.svc:8081"),
    ],
)
def test_endpoint(fields: dict[str, Any], router_ready: bool, url: str) -> None:
    """Clients are sent to the entry Service, and to the router once it is ready."""
    assert endpoint(OWNER, spec(**fields), router_ready=router_ready) == url


def test_the_front_service_can_point_at_another_role() -> None:
    """`<deployment>` keeps its name when another role stands in for the entry role."""
    wanted = ModelDeploymentSpec.model_validate(
        {
            "model": {"name": "m"},
            "engine": {"name": "vLLM"},
            "entryRole": "new",
            "roles": [{"name": "old", "image": "i"}, {"name": "new", "image": "i"}],
        }
    )
    usual, stand_in = render_services(OWNER, wanted)[0], front_service(OWNER, wanted.role("old"))
    assert usual["metadata"] == stand_in["metadata"]
    assert usual["spec"]["selector"][labels.COMPONENT] == "new"
    assert stand_in["spec"]["selector"][labels.COMPONENT] == "old"


def test_the_longest_names_are_host_names() -> None:
    """A Pod of the longest allowed names, the highest ordinal and member, has a name of 63 characters."""
    owner = Owner("d" * 46, "ns", "uid")
    assert len(owner.role_service_name("server")) == 53
    assert len(owner.pod_name("server", 1023, 63)) <= 63
