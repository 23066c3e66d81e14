"""The Pod Security Standard `restricted`, rule by rule, with those of `baseline` that it includes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Spec = Mapping[str, Any]

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
SECCOMP = {"RuntimeDefault", "Localhost"}
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def containers(spec: Spec) -> list[Mapping[str, Any]]:
    """Return all containers of a pod."""
    return [
        *spec.get("initContainers", ()),
        *spec["containers"],
        *spec.get("ephemeralContainers", ()),
    ]


def _security(container: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = container.get("securityContext") or {}
    return found


def _contexts(spec: Spec) -> list[Mapping[str, Any]]:
    return [spec.get("securityContext") or {}, *map(_security, containers(spec))]


def host_process(spec: Spec) -> bool:
    """No Windows HostProcess."""
    return not any((one.get("windowsOptions") or {}).get("hostProcess") for one in _contexts(spec))


def host_namespaces(spec: Spec) -> bool:
    """No namespace of the host."""
    return not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))


def privileged(spec: Spec) -> bool:
    """No privileged container."""
    return not any(_security(one).get("privileged") for one in containers(spec))


def capabilities(spec: Spec) -> bool:
    """ALL capabilities are dropped, and none but NET_BIND_SERVICE is added."""
    found = [_security(one).get("capabilities") or {} for one in containers(spec)]
    return all("ALL" in one.get("drop", ()) and set(one.get("add", ())) <= {"NET_BIND_SERVICE"} for one in found)


def volumes(spec: Spec) -> bool:
    """No volume of the host, and only types of the list."""
    return all(set(one) - {"name"} <= VOLUMES for one in spec.get("volumes", ()))


def host_ports(spec: Spec) -> bool:
    """No port of the host."""
    return not any(port.get("hostPort") for one in containers(spec) for port in one.get("ports", ()))


def host_probes(spec: Spec) -> bool:
    """No probe or lifecycle hook names a host."""
    handlers = [one[name] for one in containers(spec) for name in PROBES if name in one]
    handlers += [hook for one in containers(spec) for hook in (one.get("lifecycle") or {}).values()]
    return not any((one.get(kind) or {}).get("host") for one in handlers for kind in ("httpGet", "tcpSocket"))


def app_armor(spec: Spec) -> bool:
    """AppArmor is not switched off."""
    return not any((one.get("appArmorProfile") or {}).get("type") == "Unconfined" for one in _contexts(spec))


def selinux(spec: Spec) -> bool:
    """No SELinux user or role, and only types of the list."""
    found = [one.get("seLinuxOptions") or {} for one in _contexts(spec)]
    return all(one.get("type", "") in SELINUX_TYPES and not one.get("user") and not one.get("role") for one in found)


def proc_mount(spec: Spec) -> bool:
    """The default mount of /proc."""
    return all(_security(one).get("procMount", "Default") == "Default" for one in containers(spec))


def sysctls(spec: Spec) -> bool:
    """Only safe sysctls."""
    return all(one["name"] in SYSCTLS for one in (spec.get("securityContext") or {}).get("sysctls", ()))


def privilege_escalation(spec: Spec) -> bool:
    """Every container forbids it."""
    return all(_security(one).get("allowPrivilegeEscalation") is False for one in containers(spec))


def non_root(spec: Spec) -> bool:
    """The pod or each container says that it does not run as root, and none takes it back."""
    pod = (spec.get("securityContext") or {}).get("runAsNonRoot")
    return all(_security(one).get("runAsNonRoot", pod) is True for one in containers(spec))


def non_root_user(spec: Spec) -> bool:
    """Nobody asks for the user 0."""
    return not any(one.get("runAsUser") == 0 for one in _contexts(spec))


def seccomp(spec: Spec) -> bool:
    """The pod or each container has a seccomp profile, and none is without."""

    def kind(context: Mapping[str, Any]) -> str | None:
        found: str | None = (context.get("seccompProfile") or {}).get("type")
        return found

    pod = kind(spec.get("securityContext") or {})
    return pod in (None, *SECCOMP) and all((kind(_security(one)) or pod) in SECCOMP for one in containers(spec))


RULES: tuple[Callable[[Spec], bool], ...] = (
    host_process,
    host_namespaces,
    privileged,
    capabilities,
    volumes,
    host_ports,
    host_probes,
    app_armor,
    selinux,
    proc_mount,
    sysctls,
    privilege_escalation,
    non_root,
    non_root_user,
    seccomp,
)


def broken(spec: Spec) -> list[str]:
    """Return the names of the rules that a pod breaks."""
    return [rule.__name__ for rule in RULES if not rule(spec)]
