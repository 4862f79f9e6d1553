"""What the controller refuses on its own, by field and reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.owned import (
    DISAGGREGATION_FLAGS,
    ENGINE_FLAGS,
    FORKED_FLAGS,
    LLM_D_FLAGS,
    ROUTER_FLAGS,
    OwnedFlag,
)
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.problems import parse_spec, spec_problems
from unit.pod_renderer.specs import OWNER, spec

EXTRA = "spec.roles[0].extraArgs"
UNHURRIED = settings(deadline=None)  # a busy machine is no failure


def found(wanted: ModelDeploymentSpec, owner: Owner = OWNER) -> list[tuple[str, str]]:
    return [(problem.path, problem.reason) for problem in spec_problems(owner, wanted)]


def spellings(flag: OwnedFlag) -> st.SearchStrategy[list[str]]:
    """Every way a parser may take a flag: whole or abbreviated, with `=`, with underscores for some hyphens."""

    @st.composite
    def spelled(draw: st.DrawFn) -> list[str]:
        length = draw(st.integers(3, len(flag.name)))
        name = "--" + "".join(
            draw(st.sampled_from("-_")) if letter == "-" else letter for letter in flag.name[2:length]
        )
        return [f"{name}=x"] if draw(st.booleans()) else [name, "x"]

    return spelled()


@pytest.mark.parametrize("flag", ENGINE_FLAGS, ids=lambda flag: flag.name)
@UNHURRIED
@given(data=st.data())
def test_owned_engine_flags(flag: OwnedFlag, data: st.DataObject) -> None:
    """Every spelling of a flag that Ebb sets is refused on every engine, at its place, naming a flag."""
    argument = data.draw(spellings(flag))
    engine = data.draw(st.sampled_from(["vLLM", "SGLang"]))
    ((path, reason),) = found(spec(engine=engine, extraArgs=["--enforce-eager", *argument]))
    assert path == f"{EXTRA}[1]"
    assert any(owned.title in reason for owned in ENGINE_FLAGS)
    assert repr(argument[0]) in reason


@pytest.mark.parametrize("flag", DISAGGREGATION_FLAGS, ids=lambda flag: flag.name)
@UNHURRIED
@given(data=st.data())
def test_owned_disaggregation_flags(flag: OwnedFlag, data: st.DataObject) -> None:
    """On Prefill and Decode roles Ebb sets these; a Server role may pass them."""
    argument = data.draw(spellings(flag))
    kind = data.draw(st.sampled_from(["Prefill", "Decode"]))
    assert f"{EXTRA}[0]" in [path for path, _ in found(spec(kind=kind, extraArgs=argument))]
    assert found(spec(extraArgs=[flag.name, "x"])) == []


def routers(flag: OwnedFlag) -> list[str]:
    """Which routers a flag is owned with."""
    llm_d = [] if flag in FORKED_FLAGS else ["llm-d-router"]
    return llm_d if flag in LLM_D_FLAGS else ["vllm-router", "sglang-gateway", *llm_d]


@pytest.mark.parametrize("flag", [*ROUTER_FLAGS, *FORKED_FLAGS, *LLM_D_FLAGS], ids=lambda flag: flag.name)
@UNHURRIED
@given(data=st.data())
def test_owned_router_flags(flag: OwnedFlag, data: st.DataObject) -> None:
    """Every spelling of a flag that Ebb sets on the router is refused at its place."""
    name = data.draw(st.sampled_from(routers(flag)))
    problems = found(spec(router={"name": name, "extraArgs": data.draw(spellings(flag))}))
    assert {path for path, _ in problems} - {"spec.router.name"} == {"spec.router.extraArgs[0]"}


def test_a_flag_is_owned_with_its_router_alone() -> None:
    """What one router calls by an owned name is free on another that does not know it."""
    assert found(spec(router={"extraArgs": ["--config-file=x"]})) == []
    problems = found(spec(router={"name": "llm-d-router", "extraArgs": ["--v", "4"]}))
    assert [path for path, _ in problems] == ["spec.router.name"]


@pytest.mark.parametrize("peer", ["300.0.0.0/8", "10.0.0.1/8", "10.0.0.0/33", "fd00::1/8", "1.2.3/8"])
def test_peers_that_are_no_networks(peer: str) -> None:
    """What only looks like a network is named with its place in the list."""
    raw = spec().model_dump(mode="json", by_alias=True, exclude_none=True)
    raw["retirement"] = {"withoutRouter": "ObserveConnections", "ignorePeers": ["10.0.0.0/8", peer]}
    problems = dict(found(ModelDeploymentSpec.model_validate(raw)))
    assert peer in problems["spec.retirement.ignorePeers[1]"]
    assert "spec.retirement.ignorePeers[0]" not in problems


def test_an_own_engine_without_a_command() -> None:
    """There is nothing to run where a Custom engine's role, let in by an older CRD, has no command."""
    paths = [path for path, _ in found(spec(engine="Custom"))]
    assert paths == ["spec.engine.name", "spec.roles[0].command"]


@pytest.mark.parametrize(
    "argument",
    [
        "--prometheus-anything",
        "--service-discovery-new=1",
        "--service_discovery",
        "--api-keys",
        "--any-selector=a",
    ],
)
def test_families_of_router_flags(argument: str) -> None:
    """A flag that a later router adds to an owned family is refused too."""
    assert found(spec(router={"extraArgs": [argument]}))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--max-model-len", "8192"],
        ["--model-impl", "auto", "--model-loader-extra-config={}"],
        ["--config-format", "auto"],
        ["--host", "0.0.0.0", "--port", "9000"],
        ["--enable-prefix-caching", "--seed", "1"],
        ["-tp", "2", "-O3"],
        ["--middleware", "one", "two"],
        ["--override-generation-config", '{"served-model-name": "--model"}'],
        ["--kv-transfer-config", '{"kv_role": "kv_both"}'],
        ["--disaggregation-mode", "null"],
    ],
)
def test_the_users_own_flags(arguments: list[str]) -> None:
    """Flags that only resemble owned ones, listeners, and prefill/decode flags are the user's."""
    assert found(spec(extraArgs=arguments)) == []


@pytest.mark.parametrize(
    ("arguments", "index"),
    [(["model"], 0), (["--enforce-eager=true", "model"], 1), (["--seed", "1", "--"], 2), (["--"], 0)],
)
def test_bare_words(arguments: list[str], index: int) -> None:
    """A word that can belong to no flag would be read as the model, and `--` would end our own flags."""
    ((path, _),) = found(spec(extraArgs=arguments))
    assert path == f"{EXTRA}[{index}]"


UDP = [{"name": "http", "port": 8000, "protocol": "UDP"}]


@pytest.mark.parametrize(
    ("role", "path", "words"),
    [
        ({"ports": UDP}, "spec.roles[0].ports", "TCP, not UDP"),
        ({"extraArgs": ["--ssl-keyfile", "/k"]}, EXTRA, "plain HTTP"),
        ({"extraArgs": ["--ssl_certf=/c"]}, EXTRA, "plain HTTP"),
    ],
)
def test_a_router_needs_plain_tcp(role: dict[str, Any], path: str, words: str) -> None:
    """Behind a router the serving port is TCP and plain HTTP; without one both are free."""
    assert found(spec(**role)) == []
    ((where, reason),) = found(spec(router={}, **role))
    assert where == path
    assert words in reason


def two_roles(**second: Any) -> dict[str, Any]:
    raw = spec(router={}).model_dump(mode="json", by_alias=True, exclude_none=True)
    raw["roles"].append({"name": "other", "image": "engine:1"} | second)
    return raw | {"entryRole": "server"}


def test_a_router_needs_one_port() -> None:
    """Behind a router all roles serve on one port number, whatever it is called."""
    same = two_roles(
        ports=[{"name": "admin", "port": 9000}, {"name": "web", "port": 8000}], servingPort="web"
    )
    assert found(ModelDeploymentSpec.model_validate(same)) == []
    other = two_roles(ports=[{"name": "http", "port": 9000}])
    ((path, reason),) = found(ModelDeploymentSpec.model_validate(other))
    assert path == "spec.roles[1].ports"
    assert "9000 here, 8000 on role server" in reason


def test_names_that_do_not_exist() -> None:
    """An entry role, a serving port or a mounted volume that is not there is named, not stumbled over."""
    raw = two_roles(servingPort="nope", volumeMounts=[{"name": "gone", "mountPath": "/x"}]) | {
        "entryRole": "none"
    }
    assert [path for path, _ in found(ModelDeploymentSpec.model_validate(raw))] == [
        "spec.entryRole",
        "spec.roles[1].servingPort",
        "spec.roles[1].volumeMounts[0].name",
    ]


def test_one_place_mounted_twice() -> None:
    """Two spellings of one mount path are one place."""
    mounts = [{"name": "v", "mountPath": "/models"}, {"name": "v", "mountPath": "/models/"}]
    ((path, reason),) = found(spec(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=mounts))
    assert path == "spec.roles[0].volumeMounts[1].mountPath"
    assert "volumeMounts[0]" in reason


def test_names_too_long_for_a_host() -> None:
    """`<deployment>-<role>` of 53 characters is rendered, of 54 not."""
    assert found(spec(), Owner("d" * 46, "ns", "uid")) == []
    ((path, _),) = found(spec(), Owner("d" * 47, "ns", "uid"))
    assert path == "spec.roles[0].name"


def test_parse_spec_reads_what_the_server_sends() -> None:
    """Fields of a later version are ignored, defaults are filled in."""
    parsed = parse_spec(
        {
            "model": {"name": "m"},
            "engine": {"name": "vLLM"},
            "roles": [{"name": "a", "image": "i"}],
            "later": 1,
        }
    )
    assert isinstance(parsed, ModelDeploymentSpec)
    assert (parsed.model_path, parsed.entry.name, parsed.retirement.total_seconds) == ("m", "a", 300)


def test_parse_spec_names_every_field_that_is_wrong() -> None:
    """Each fault has the path of its own field, and a list is not blamed for its items."""
    problems = parse_spec(
        {"model": {"name": "m"}, "engine": {"name": "TGI"}, "roles": [{"name": "a", "replicas": -1}]}
    )
    assert isinstance(problems, tuple)
    assert {problem.path for problem in problems} == {
        "spec.engine.name",
        "spec.roles[0].image",
        "spec.roles[0].replicas",
    }
    assert str(problems[0]).startswith("spec.engine.name: ")
