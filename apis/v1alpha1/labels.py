"""Every name that Ebb writes on an object, so that no two modules can spell one differently."""

from __future__ import annotations

from typing import Final

GROUP: Final = "ebb.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "ModelDeployment"
PLURAL: Final = "modeldeployments"

FINALIZER: Final = "ebb.dev/retirement"

# Identity: who a Pod belongs to. `…/instance` is the deployment, `…/component` the role.
NAME: Final = "app.kubernetes.io/name"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
EBB: Final = "ebb"
ROUTER_COMPONENT: Final = "router"

# Seat: (role, ordinal, member), and how many members the replica was built with.
ROLE_KIND: Final = "ebb.dev/role-kind"
REPLICA: Final = "ebb.dev/replica"
MEMBER: Final = "ebb.dev/member"
REPLICA_SIZE: Final = "ebb.dev/replica-size"

# Outside the hash: it comes off for a reservation and goes back on afterwards.
ENDPOINT_ELIGIBLE: Final = "ebb.dev/endpoint-eligible"

POD_HASH: Final = "ebb.dev/pod-hash"
SCRAPE: Final = "prometheus.io/scrape"
SCRAPE_PATH: Final = "prometheus.io/path"
SCRAPE_PORT: Final = "prometheus.io/port"
SCRAPE_SCHEME: Final = "prometheus.io/scheme"

# What a person asks for by annotation on the ModelDeployment.
PAUSED: Final = "ebb.dev/paused"
RETIREMENT_RETRY: Final = "ebb.dev/retirement-retry"
RETIREMENT_ABORT: Final = "ebb.dev/retirement-abort"

MAIN_CONTAINER: Final = "main"
