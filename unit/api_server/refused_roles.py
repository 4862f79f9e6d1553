"""Wrong objects whose fault is in the model, the engine or a role: object, path of the field, words of a reason."""

from __future__ import annotations

from typing import Any, Final

from unit.api_server.objects import deployment, own_engine, role, with_role

OWNED_KEYS: Final = "are set by Ebb"
PAIR: Final = (("p", "Prefill"), ("d", "Decode"))

REFUSED: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "no model": (deployment(model=None), "spec.model", "Required"),
    "empty model name": (deployment(model={"name": ""}), "spec.model.name", "at least 1 char"),
    "model name that is a flag": (deployment(model={"name": "--x"}), "spec.model.name", "should match"),
    "unknown engine": (
        deployment(engine={"name": "TGI"}),
        "spec.engine.name",
        'supported values: "vLLM", "SGLang", "Custom"',
    ),
    "no role": (deployment(roles=[]), "spec.roles", "at least 1 items"),
    "11 roles": (
        deployment(roles=[role(name=f"r{number}") for number in range(11)], entryRole="r0"),
        "spec.roles",
        "at most 10 items",
    ),
    "two roles of one name": (
        deployment(roles=[role(), role()], entryRole="server"),
        "spec.roles[1]",
        "Duplicate",
    ),
    "two roles, no entry role": (
        deployment(roles=[role(name="a"), role(name="b")]),
        "spec.entryRole",
        "entryRole is required with several Server roles",
    ),
    "entry role that is not there": (
        deployment(entryRole="other"),
        "spec.entryRole",
        "entryRole must name one of roles",
    ),
    "role called router": (with_role(name="router"), "spec.roles[0].name", "reserved for the router"),
    "role name in capitals": (with_role(name="Server"), "spec.roles[0].name", "should match"),
    "unknown kind": (
        with_role(kind="Encode"),
        "spec.roles[0].kind",
        'supported values: "Server", "Prefill", "Decode"',
    ),
    "65 Pods per replica": (with_role(size=65), "spec.roles[0].size", "less than or equal to 64"),
    "no Pod per replica": (with_role(size=0), "spec.roles[0].size", "greater than or equal to 1"),
    "1025 replicas": (with_role(replicas=1025), "spec.roles[0].replicas", "less than or equal to 1024"),
    "no image": (with_role(image=None), "spec.roles[0].image", "Required"),
    "deployment name of 57": (
        deployment(name="d" * 57, roles=[role(name="a")]),
        "metadata.name",
        "56",
    ),
    "deployment and role of 54": (
        deployment(name="d" * 47),
        "spec.roles",
        "<deployment>-<role> has at most 53 characters",
    ),
    "deployment name with a dot": (deployment(name="a.b"), "metadata.name", "should match"),
    "serving port that is not there": (
        with_role(servingPort="grpc"),
        "spec.roles[0].servingPort",
        "servingPort must name one of ports",
    ),
    "port number twice": (
        with_role(ports=[{"name": "a", "port": 1}, {"name": "b", "port": 1}]),
        "spec.roles[0].ports",
        "once per protocol",
    ),
    "port name without a letter": (
        with_role(ports=[{"name": "80", "port": 80}]),
        "spec.roles[0].ports[0].name",
        "needs a letter",
    ),
    "port 0": (
        with_role(ports=[{"name": "a", "port": 0}]),
        "spec.roles[0].ports[0].port",
        "greater than or equal to 1",
    ),
    "grace of 14 s": (
        with_role(terminationGracePeriodSeconds=14),
        "spec.roles[0].terminationGracePeriodSeconds",
        "greater than or equal to 15",
    ),
    "startup of 59 s": (
        with_role(startupSeconds=59),
        "spec.roles[0].startupSeconds",
        "greater than or equal to 60",
    ),
    "liveness of 29 s": (
        with_role(livenessSeconds=29),
        "spec.roles[0].livenessSeconds",
        "greater than or equal to 30",
    ),
    "shared memory that is no quantity": (with_role(shmSize="big"), "spec.roles[0].shmSize", "should match"),
    "command and arguments": (
        with_role(command=["serve"], extraArgs=["--x"]),
        "spec.roles[0].extraArgs",
        "command is the whole argv",
    ),
    "environment of ours": (
        with_role(env=[{"name": "EBB_MEMBER_INDEX", "value": "1"}]),
        "spec.roles[0].env[0].name",
        "variables that begin with EBB_",
    ),
    "environment of ours from a map": (
        with_role(envFrom=[{"prefix": "EBB_", "configMapRef": {"name": "x"}}]),
        "spec.roles[0].envFrom[0].prefix",
        "variables that begin with EBB_",
    ),
    "variable with two values": (
        with_role(
            env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        ),
        "spec.roles[0].env[0].value",
        "exclude each other",
    ),
    "label of ours": (with_role(podLabels={"ebb.dev/replica": "1"}), "spec.roles[0].podLabels", OWNED_KEYS),
    "identity label": (
        with_role(podLabels={"app.kubernetes.io/instance": "x"}),
        "spec.roles[0].podLabels",
        OWNED_KEYS,
    ),
    "label of Kueue's": (
        with_role(podLabels={"kueue.x-k8s.io/a": "1"}),
        "spec.roles[0].podLabels",
        OWNED_KEYS,
    ),
    "scrape annotation": (
        with_role(podAnnotations={"prometheus.io/port": "1"}),
        "spec.roles[0].podAnnotations",
        OWNED_KEYS,
    ),
    "volume of ours": (
        with_role(volumes=[{"name": "ebb-shm", "emptyDir": {}}]),
        "spec.roles[0].volumes[0].name",
        "begin with ebb-",
    ),
    "init container main": (
        with_role(initContainers=[{"name": "main", "image": "x"}]),
        "spec.roles[0].initContainers[0].name",
        "`main` is the engine",
    ),
    "lifecycle": (
        with_role(lifecycle={"preStop": {}}),
        "strict decoding error",
        'unknown field "spec.roles[0].lifecycle"',
    ),
    "positional model": (with_role(extraArgs=["other"]), "spec.roles[0].extraArgs", "must be a flag"),
    "--model": (
        with_role(extraArgs=["--model", "x"]),
        "spec.roles[0].extraArgs",
        "--model stands for it too",
    ),
    "--model=": (
        with_role(extraArgs=["--seed", "1", "--model=x"]),
        "spec.roles[0].extraArgs",
        "spec.model.path",
    ),
    "--model-path": (with_role(extraArgs=["--model-path", "x"]), "spec.roles[0].extraArgs", "--model-path"),
    "--served_model_name=": (
        with_role(extraArgs=["--served_model_name=x"]),
        "spec.roles[0].extraArgs",
        "--served-model-name is refused",
    ),
    "--served-model": (
        with_role(extraArgs=["--served-model", "x"]),
        "spec.roles[0].extraArgs",
        "--served-model-name is refused",
    ),
    "--config": (with_role(extraArgs=["--config=x"]), "spec.roles[0].extraArgs", "--config is refused"),
    "--enable-metrics": (
        with_role(extraArgs=["--enable-metrics"]),
        "spec.roles[0].extraArgs",
        "--enable-metrics is refused",
    ),
    "queue name in capitals": (deployment(queueName="Gold"), "spec.queueName", "should match"),
    "queue name of 64": (deployment(queueName="q" * 64), "spec.queueName", "may not be more than 63"),
    "budget that says nothing": (
        with_role(podDisruptionBudget={}),
        "spec.roles[0].podDisruptionBudget.maxUnavailable",
        "Required",
    ),
    "share over all": (
        with_role(podDisruptionBudget={"maxUnavailable": "101%"}),
        "spec.roles[0].podDisruptionBudget.maxUnavailable",
        "should match",
    ),
    "less than none": (
        with_role(podDisruptionBudget={"maxUnavailable": -1}),
        "spec.roles[0].podDisruptionBudget.maxUnavailable",
        "greater than or equal to 0",
    ),
    "257 arguments": (with_role(extraArgs=["--x"] * 257), "spec.roles[0].extraArgs", "at most 256 items"),
    "model path that is a flag": (
        deployment(model={"name": "m", "path": "-x"}),
        "spec.model.path",
        "should match",
    ),
    "empty command": (with_role(command=[]), "spec.roles[0].command", "at least 1 items"),
    "unknown pull policy": (
        with_role(imagePullPolicy="Sometimes"),
        "spec.roles[0].imagePullPolicy",
        'supported values: "Always", "Never", "IfNotPresent"',
    ),
    "field that does not exist": (
        with_role(gpus=1),
        "strict decoding error",
        'unknown field "spec.roles[0].gpus"',
    ),
    "prefill beside a server": (
        deployment(roles=[role(), role(name="p", kind="Prefill")]),
        "spec.roles",
        "Server roles do not mix with Prefill and Decode roles",
    ),
    "two prefills": (
        deployment(roles=[role(name="p", kind="Prefill"), role(name="q", kind="Prefill")]),
        "spec.roles",
        "at most one role is of kind Prefill",
    ),
    "two decodes": (
        deployment(
            roles=[role(name=name, kind=kind) for name, kind in PAIR] + [role(name="e", kind="Decode")]
        ),
        "spec.roles",
        "at most one of kind Decode",
    ),
    "role called as a replica": (
        deployment(roles=[role(name="a", size=2), role(name="a-r0")], entryRole="a"),
        "spec.roles",
        "needs the names <role>-r0, <role>-r1",
    ),
    "prefill --kv-transfer-config": (
        with_role(kind="Prefill", extraArgs=["--kv-transfer-config={}"]),
        "spec.roles[0].extraArgs",
        "--kv-transfer-config is refused",
    ),
    "decode --disaggregation_mode": (
        with_role(kind="Decode", extraArgs=["--disaggregation_mode", "decode"]),
        "spec.roles[0].extraArgs",
        "--disaggregation-mode is refused",
    ),
    "decode --disaggregation-boot": (
        with_role(kind="Decode", extraArgs=["--disaggregation-boot", "1"]),
        "spec.roles[0].extraArgs",
        "--disaggregation-bootstrap-port is refused",
    ),
    "an own engine without a command": (
        deployment(engine={"name": "Custom"}),
        "spec.roles",
        "with the engine Custom every role brings its command",
    ),
    "metrics of a known engine": (
        deployment(engine={"name": "vLLM", "metrics": {}}),
        "spec.engine.metrics",
        "metrics is for the engine Custom",
    ),
    "metrics path without a slash": (own_engine(path="metrics"), "spec.engine.metrics.path", "should match"),
    "metrics port 65536": (
        own_engine(port=65536),
        "spec.engine.metrics.port",
        "less than or equal to 65535",
    ),
    "metrics scheme in small letters": (
        own_engine(scheme="https"),
        "spec.engine.metrics.scheme",
        'supported values: "HTTP", "HTTPS"',
    ),
    "gauge with labels": (
        own_engine(inFlight=['running{model="m"}']),
        "spec.engine.metrics.inFlight[0]",
        "should match",
    ),
    "one gauge twice": (
        own_engine(inFlight=["running", "running"]),
        "spec.engine.metrics.inFlight[1]",
        "Duplicate",
    ),
    "no gauge": (own_engine(inFlight=[]), "spec.engine.metrics.inFlight", "at least 1 items"),
}
