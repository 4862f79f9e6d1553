"""The hash that says whether a running Pod is what its seat would get now.

It covers what the Pod runs. It leaves out what may differ without a new process: the eligibility label, who
owns the Pod, and the text of the drain hook, of which only the facts count, so that a fix of the hook turns
no accelerator over unless its revision is raised on purpose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from apis.v1alpha1 import labels
from apis.v1alpha1.role import DEFAULT_GRACE_SECONDS

DIGITS: Final = 16


def compute_hash(pod: Mapping[str, Any], hook: Mapping[str, Any] | None) -> str:
    """Of a Pod as rendered before its hook, hash and eligibility are added; `hook` is None where there is
    none.

    A grace of 30 is what Kubernetes gives a Pod that names none, so writing it down changes nothing.
    """
    spec = dict(pod["spec"])
    if spec.get("terminationGracePeriodSeconds") == DEFAULT_GRACE_SECONDS:
        del spec["terminationGracePeriodSeconds"]
    covered = {
        "labels": pod["metadata"]["labels"],
        "annotations": pod["metadata"].get("annotations", {}),
        "spec": spec,
        "hook": hook,
    }
    canonical = orjson.dumps(covered, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:DIGITS]


def pod_hash(pod: Mapping[str, Any]) -> str:
    """The hash that a rendered or a live Pod carries, "" when it carries none."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(labels.POD_HASH, ""))
