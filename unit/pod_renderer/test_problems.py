"""What the controller refuses on its own, by field and reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.owned import ENGINE_FLAGS, ROUTER_FLAGS, OwnedFlag
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.problems import parse_spec, spec_problems
from unit.pod_renderer.specs import OWNER, spec

EXTRA = "spec.roles[0].extraArgs"


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
@given(data=st.data())
def test_owned_engine_flags(flag: OwnedFlag, data: st.DataObject) -> None:
    """Every spelling of a flag that Ebb sets is refused on every engine, at its place, naming a flag."""
    argument = data.draw(spellings(flag))
    engine = data.draw(st.sampled_from(["vLLM", "SGLang"]))
    ((path, reason),) = found(spec(engine=engine, extraArgs=["--enforce-eager", *argument]))
    assert path == f"{EXTRA}[1]"
    assert any(owned.title in reason for owned in ENGINE_FLAGS)
    assert repr(argument[0]) in reason


@pytest.mark.parametrize("flag", ROUTER_FLAGS, ids=lambda flag: flag.name)
@given(data=st.data())
def test_owned_router_flags(flag: OwnedFlag, data: st.DataObject) -> None:
    """Every spelling of a flag that Ebb sets on the router is refused at its place."""
    problems = found(spec(router={"extraArgs": data.draw(spellings(flag))}))
    assert {path for path, _ in problems} == {"spec.router.extraArgs[0]"}


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
        {"model": {"name": "m"}, "engine": {"name": "Custom"}, "roles": [{"name": "a", "replicas": -1}]}
    )
    assert isinstance(problems, tuple)
    assert {problem.path for problem in problems} == {
        "spec.engine.name",
        "spec.roles[0].image",
        "spec.roles[0].replicas",
    }
    assert str(problems[0]).startswith("spec.engine.name: ")
