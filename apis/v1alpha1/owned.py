"""Names that Ebb sets itself and therefore refuses from users: flags, environment, labels, annotations.

Each is written once; the CEL rules of the CRD and the controller's own check are both made from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from apis.v1alpha1.base import Rule
from apis.v1alpha1.flags import CEL_FLAG_NAME, CEL_IS_FLAG, flag_name

ENV_PREFIX: Final = "EBB_"
VOLUME_PREFIX: Final = "ebb-"
KEY_PREFIXES: Final = ("ebb.dev/", "prometheus.io/", "kueue.x-k8s.io/")
KEYS: Final = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/managed-by",
)


@dataclass(frozen=True, slots=True)
class OwnedFlag:
    """A command-line flag that is not the user's, and why."""

    name: str
    why: str
    family: str = ""
    """Prefix of whole names that go with it, e.g. `--prometheus-`; "" for this one name."""

    @property
    def title(self) -> str:
        return f"{self.family}*" if self.family else self.name

    @property
    def sentence(self) -> str:
        return f"{self.title} is refused in every spelling: {self.why}"

    def matches(self, argument: str) -> bool:
        """Whether an argument is this flag: cut at `=`, underscores folded, any abbreviation that argparse
        takes."""
        name = flag_name(argument)
        if name is None:
            return False
        return self.name.startswith(name) or bool(self.family and name.startswith(self.family))

    def rule(self, *, of: str = "self", unless: str = "") -> Rule:
        """The same for the API server. `of` is the list of arguments as seen from where the rule stands; where
        CEL `unless` holds, the flag is the user's."""
        this = f"'{self.name}'.startsWith({CEL_FLAG_NAME})"
        if self.family:
            this = f"({this} || {CEL_FLAG_NAME}.startsWith('{self.family}'))"
        where = f"{unless} || " if unless else ""
        return Rule(
            f"{where}{of}.all(a, !({CEL_IS_FLAG} && {this}))",
            self.sentence,
            path=of.removeprefix("self"),
            reason="FieldValueForbidden",
        )


ENGINE_FLAGS: Final = (
    # vLLM calls it --model, SGLang both; the shorter one is an abbreviation of the longer.
    OwnedFlag("--model-path", "the model is spec.model.path (--model stands for it too)"),
    OwnedFlag("--served-model-name", "the served name is spec.model.name"),
    OwnedFlag("--enable-metrics", "Ebb sets it where the engine needs it"),
    OwnedFlag("--config", "a file could set what Ebb sets, unseen"),
)
"""One list for vLLM and SGLang: neither has a flag of its own under the other's names."""

DISAGGREGATION_FLAGS: Final = (
    OwnedFlag("--kv-transfer-config", "Ebb sets it on Prefill and Decode roles"),
    OwnedFlag("--disaggregation-mode", "Ebb sets it on Prefill and Decode roles"),
    OwnedFlag("--disaggregation-bootstrap-port", "Ebb sets it on Prefill and Decode roles"),
)
"""Owned beside ENGINE_FLAGS on Prefill and Decode roles; on a Server role they are the user's."""

ROUTER_FLAGS: Final = (
    OwnedFlag("--host", "the controller asks every router Pod at its own address"),
    OwnedFlag("--port", "the API port is 8081"),
    OwnedFlag("--prometheus-port", "the metrics port is 9090, on every address", family="--prometheus-"),
    OwnedFlag(
        "--service-discovery-namespace",
        "replicas are discovered by Ebb's labels",
        family="--service-discovery",
    ),
    OwnedFlag("--selector", "replicas are discovered by Ebb's labels"),
    OwnedFlag("--prefill-selector", "replicas are discovered by Ebb's labels"),
    OwnedFlag("--decode-selector", "replicas are discovered by Ebb's labels"),
    OwnedFlag("--policy", "it is pinned to one that counts requests in flight"),
    OwnedFlag("--worker-urls", "replicas are discovered by Ebb's labels"),
    OwnedFlag(
        "--api-key", "a key in a command line is readable by everybody who may read Pods", family="--api-key"
    ),
    OwnedFlag(
        "--control-plane-api-keys", "a key in a command line is readable by everybody who may read Pods"
    ),
)
"""Of every router."""

FORKED_FLAGS: Final = (
    OwnedFlag("--mini-lb", "that mode lists no replicas, so a withdrawal could never be confirmed"),
    OwnedFlag("--vllm-pd-disaggregation", "the replicas of a Server role are not prefill or decode ones"),
    OwnedFlag("--vllm-discovery-address", "replicas are discovered by Ebb's labels"),
)
"""Owned beside ROUTER_FLAGS with `vllm-router`, a fork of `sglang-gateway`, and with the latter."""

LLM_D_FLAGS: Final = (
    OwnedFlag("--endpoint-selector", "replicas are discovered by Ebb's labels"),
    OwnedFlag("--endpoint-target-ports", "the port is the one that the roles serve on"),
    OwnedFlag("--config-file", "a file could switch off what the controller reads"),
    OwnedFlag("--secure-serving", "Envoy asks it in plain text inside the Pod"),
    OwnedFlag("--grpc-health-port", "the probes ask there"),
    OwnedFlag("--metrics-endpoint-auth", "the controller reads the metrics without a token"),
)
"""Owned beside ROUTER_FLAGS with `llm-d-router`."""

SELECTORS_REFUSED: Final = "--*-selector is refused: replicas are discovered by Ebb's labels"

FIRST_IS_FLAG: Final = Rule(
    "self.size() == 0 || self[0].startsWith('-')",
    "the first argument must be a flag: a bare word there would be taken for a model or a second served name",
)


def key_rule(what: str) -> Rule:
    """For a map of labels or annotations."""
    prefixes = " && ".join(f"!k.startsWith('{prefix}')" for prefix in KEY_PREFIXES)
    names = ", ".join(f"'{key}'" for key in KEYS)
    return Rule(
        f"self.all(k, {prefixes} && !(k in [{names}]))",
        f"{what} under ebb.dev/, prometheus.io/, kueue.x-k8s.io/ and app.kubernetes.io/name, instance, component, "
        "managed-by are set by Ebb",
        reason="FieldValueForbidden",
    )


def owned_flags(arguments: Sequence[str], flags: Sequence[OwnedFlag]) -> Iterator[tuple[int, OwnedFlag]]:
    """Each argument that is an owned flag, with its index; the first flag that it matches."""
    for index, argument in enumerate(arguments):
        found = next((flag for flag in flags if flag.matches(argument)), None)
        if found is not None:
            yield index, found
